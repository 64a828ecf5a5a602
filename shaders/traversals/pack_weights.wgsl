// Writes gamma or beta, times the gate if there is one, to the workspace as reals, for rows where an adapter binds too few buffers:
// workspace[weights + q] = gamma of columns 4q to 4q + 3. An invocation does a vec4.
//
// Bindings: gamma (or beta, `of_beta`), gate (optional: 1) read; workspace written. Moves a row's length in elements in and out.

#import tiles, params

@compute @workgroup_size(workgroup_size)
fn pack_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let vec4_index = tile_of(workgroup) * workgroup_size + local;
    if vec4_index >= (uniforms.columns + 3u) / 4u { return; }
    store_workspace(uniforms.weights + vec4_index, load_param(vec4_index, of_beta));
}
