// gamma as reals in the workspace, for layer norm's rows where an adapter binds too few buffers:
// workspace[weights + q] = gamma of columns 4q to 4q + 3. An invocation does a quad.
//
// Bindings: gamma read; workspace written. Moves a row's length in elements in and out.

@compute @workgroup_size(workgroup_size)
fn pack_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let quad = tile_of(workgroup) * workgroup_size + local;
    if quad >= (uniforms.columns + 3u) / 4u { return; }
    store_workspace(uniforms.weights + quad, load_gamma(quad));
}
