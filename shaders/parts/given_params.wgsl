// gamma and beta where each may be missing, or, where the adapter binds too few buffers, in the workspace.

#import records, params

fn given_params(vec4_index: u32) -> Params {
    var given = Params(real4(1.0), real4());
    if !weighted {
        if scaled || offset { given = load_params(vec4_index); }
        return given;
    }
    if scaled { given.gamma = load_workspace(uniforms.weights + vec4_index); }
    if offset { given.beta = load_workspace(uniforms.offsets + vec4_index); }
    return given;
}
