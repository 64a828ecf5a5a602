// Writes gamma or beta to the workspace as reals, for rows where an adapter binds too few buffers:
// workspace[weights + q] = gamma of columns 4q to 4q + 3; with a gate, gamma and gate by turns. An invocation does a vec4.
//
// Bindings: gamma (or beta, `of_beta`), gate (optional: 1) read; workspace written. Moves a row's length in elements in and out.

#import tiles

@compute @workgroup_size(workgroup_size)
fn pack_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let vec4_index = tile_of(workgroup) * workgroup_size + local;
    if vec4_index >= (uniforms.columns + 3u) / 4u { return; }
    if of_beta {
        store_workspace(uniforms.weights + vec4_index, load_beta(vec4_index));
    } else if !gated {
        store_workspace(uniforms.weights + vec4_index, load_gamma(vec4_index));
    } else {
        store_workspace(uniforms.weights + 2u * vec4_index, load_gamma(vec4_index));
        store_workspace(uniforms.weights + 2u * vec4_index + 1u, load_gate(vec4_index));
    }
}
