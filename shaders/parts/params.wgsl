// gamma and beta of four elements, or of four channels; times the gate, if there is one.

#import records, realigned

fn load_params(vec4_index: u32) -> Params {
    let params = Params(load_gamma(vec4_index), load_beta(vec4_index));
    if !gated { return params; }
    let gate = load_gate(vec4_index);
    return Params(gate * params.gamma, gate * params.beta);
}

// Loads gamma alone, or beta.
fn load_param(vec4_index: u32, beta: bool) -> real4 {
    let params = load_params(vec4_index);
    if beta { return params.beta; }
    return params.gamma;
}

fn select_params(f: Params, t: Params, condition: vec4<bool>) -> Params {
    return Params(select(f.gamma, t.gamma, condition), select(f.beta, t.beta, condition));
}

// Repeats gamma and beta of element i for all four.
fn splat_params(params: Params, i: u32) -> Params {
    return Params(real4(params.gamma[i]), real4(params.beta[i]));
}

fn realigned_params(own: Params, next: Params, misalignment: u32) -> Params {
    return Params(realigned(own.gamma, next.gamma, misalignment), realigned(own.beta, next.beta, misalignment));
}

fn params_before(before: Params, own: Params, misalignment: u32) -> Params {
    return Params(
        realigned_before(before.gamma, own.gamma, misalignment),
        realigned_before(before.beta, own.beta, misalignment),
    );
}

// Takes gamma and beta of the first element of each.
fn params_side_by_side(a: Params, b: Params, c: Params, d: Params) -> Params {
    return Params(
        real4(a.gamma.x, b.gamma.x, c.gamma.x, d.gamma.x),
        real4(a.beta.x, b.beta.x, c.beta.x, d.beta.x),
    );
}
