// gamma, beta and gate where each may be missing, or, where the adapter binds too few buffers, in the workspace.

#import records, params

fn given_params(vec4_index: u32) -> Params {
    if !weighted { return load_params(vec4_index); }
    var gamma = real4(1.0);
    var beta = real4();
    var gate = real4(1.0);
    if gated {
        gamma = load_workspace(uniforms.weights + 2u * vec4_index);
        gate = load_workspace(uniforms.weights + 2u * vec4_index + 1u);
    } else if scaled {
        gamma = load_workspace(uniforms.weights + vec4_index);
    }
    if offset { beta = load_workspace(uniforms.offsets + vec4_index); }
    return gated_params(gamma, beta, gate);
}
