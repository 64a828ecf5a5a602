// gamma and beta of four elements, or of four channels; and the gate, if there is one.

#import records, realigned

fn load_params(vec4_index: u32) -> Params {
    return gated_params(load_gamma(vec4_index), load_beta(vec4_index), load_gate(vec4_index));
}

// Multiplies gamma and beta by the gate, unless gate · gamma, with some room for a factor r, is beyond the type: then the
// gate stays apart, since gate · (x̂ · gamma + beta) may not be.
fn gated_params(gamma: real4, beta: real4, gate: real4) -> Params {
    if !gated { return Params(gamma, beta, real4()); }
    let joined = is_normal(gate * gamma * real4(1048576.0));
    return Params(select(gamma, gate * gamma, joined), select(beta, gate * beta, joined), select(gate, real4(1.0), joined));
}

fn select_params(f: Params, t: Params, condition: vec4<bool>) -> Params {
    return Params(select(f.gamma, t.gamma, condition), select(f.beta, t.beta, condition), select(f.gate, t.gate, condition));
}

// Repeats the parameters of element i for all four.
fn splat_params(params: Params, i: u32) -> Params {
    return Params(real4(params.gamma[i]), real4(params.beta[i]), real4(params.gate[i]));
}

fn realigned_params(own: Params, next: Params, misalignment: u32) -> Params {
    return Params(
        realigned(own.gamma, next.gamma, misalignment),
        realigned(own.beta, next.beta, misalignment),
        realigned(own.gate, next.gate, misalignment),
    );
}

// Takes the parameters of the first element of each.
fn params_side_by_side(a: Params, b: Params, c: Params, d: Params) -> Params {
    return Params(
        real4(a.gamma.x, b.gamma.x, c.gamma.x, d.gamma.x),
        real4(a.beta.x, b.beta.x, c.beta.x, d.beta.x),
        real4(a.gate.x, b.gate.x, c.gate.x, d.gate.x),
    );
}
