// gelu(y) = y · Φ(y), where Φ is the normal distribution function, and its gradient Φ(y) + y · φ(y), where φ is the
// density.
//
// Both are computed from a = |y|, e = exp(−a² / 4) and q(a) = Φ(−a) / e². q is t = 1 / (1 + 0.24 · a) times a
// polynomial whose relative error is below 1e-6 up to a = 15, beyond which e² is 0. The two factors e come one at a
// time: Φ(y) may be subnormal where y · Φ(y) is not.

#import near_zero

struct Tail {
    a: real4,
    q: real4,
    e: real4,
}

fn tail_of(y: real4) -> Tail {
    let a = abs(near_zero(y));
    let t = real4(1.0) / (real4(1.0) + real4(0.24) * a);
    let s = (real4(0.24) * a) * t; // 1 − t; q is 1 / 2 where it is 0
    var q = real4(-0.025770564);
    q = q * s + real4(0.1059088);
    q = q * s - real4(0.12842923);
    q = q * s - real4(0.05076082);
    q = q * s + real4(0.1721648);
    q = q * s + real4(0.25490162);
    q = q * s - real4(1.0857897);
    q = q * s + real4(1.5157758);
    q = q * s - real4(1.1622599);
    q = q * s + real4(0.5);
    return Tail(a, q * t, exp(real4(-0.25) * (a * a)));
}

// max(y, 0) − a · Φ(−a). NaN stays NaN, since bits are compared.
fn activation(y: real4) -> real4 {
    let tail = tail_of(y);
    return select(y, real4(), at_most_zero(y)) - ((tail.a * tail.q) * tail.e) * tail.e;
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    let tail = tail_of(y);
    let density = real4(0.39894228) * tail.a; // a / √(2π); times e² it is a · φ(a)
    let below = ((diff * tail.e) * (tail.q - density)) * tail.e; // the gradient at −a
    return select(diff - below, below, y < real4());
}
