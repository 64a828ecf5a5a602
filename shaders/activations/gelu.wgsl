// gelu(y) = y · Φ(y), where Φ is the normal distribution's, and its gradient Φ(y) + y · φ(y), φ being its density.
//
// By a = |y|, e = exp(−a² / 4) and q(a) = Φ(−a) / e², t = 1 / (1 + 0.24 · a) times a polynomial whose relative
// error is below 1e-6 as far as a is 15; behind that e² is 0. The two factors e come last and one by one: Φ(y) may be
// subnormal where y · Φ(y) is not.

struct Tail {
    a: real4,
    q: real4,
    e: real4,
}

fn tail_of(y: real4) -> Tail {
    // A comparison by the bits, here and below: compilers make a minimum or maximum of others, which loses NaN.
    let a = select(abs(y), real4(15.0), at_most_zero(real4(15.0) - abs(y)));
    let t = real4(1.0) / (real4(1.0) + real4(0.24) * a);
    let s = (real4(0.24) * a) * t; // 1 − t, of which q is 1 / 2 at 0
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

// max(y, 0) − a · Φ(−a). NaN stays NaN.
fn activation(y: real4) -> real4 {
    let tail = tail_of(y);
    return select(y, real4(), at_most_zero(y)) - ((tail.a * tail.q) * tail.e) * tail.e;
}

fn activation_gradient(y: real4, diff: real4) -> real4 {
    let tail = tail_of(y);
    let density = real4(0.39894228) * tail.a; // a / √(2π), and e² makes a · φ(a) of it
    let below = ((diff * (tail.q - density)) * tail.e) * tail.e; // of −a
    return select(diff - below, below, y < real4());
}
