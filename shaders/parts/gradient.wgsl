// diff_src = scale · ((diff_dst − a) − x̂ · b) with x̂ = (src − mean) · r, of what one channel or row has.

struct Coefficients {
    mean: real,
    r: real,
    a: real,
    b: real,
    scale: real, // gamma · r of a channel; r of a row, whose gamma is in diff_dst
}

fn gradient(d: real4, src: real4, c: Coefficients) -> real4 {
    let xhat = (src - real4(c.mean)) * c.r;
    return ((d - real4(c.a)) - xhat * c.b) * c.scale;
}

fn select_coefficients(f: Coefficients, t: Coefficients, condition: bool) -> Coefficients {
    return Coefficients(
        select(f.mean, t.mean, condition),
        select(f.r, t.r, condition),
        select(f.a, t.a, condition),
        select(f.b, t.b, condition),
        select(f.scale, t.scale, condition),
    );
}
