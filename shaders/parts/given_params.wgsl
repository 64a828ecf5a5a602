// gamma and beta where each may be missing, or, where the adapter binds too few buffers, in the workspace.

#import records

fn given_params(vec4_index: u32) -> Params {
    var gamma = real4(1.0);
    var beta = real4();
    if scaled {
        if weighted { gamma = load_workspace(uniforms.weights + vec4_index); } else { gamma = load_gamma(vec4_index); }
    }
    if offset {
        if weighted { beta = load_workspace(uniforms.offsets + vec4_index); } else { beta = load_beta(vec4_index); }
    }
    return Params(gamma, beta);
}
