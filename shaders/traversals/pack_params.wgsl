// Copies a parameter to the workspace as reals, for kernels over rows and columns where an adapter binds too few
// buffers: workspace[copy + q] = elements 4q to 4q + 3. An invocation does a vec4.
//
// Bindings: one of the parameters read; workspace written.
// Moves the parameter in and out.

#import tiles

@compute @workgroup_size(workgroup_size)
fn pack_params(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let vec4_index = tile_of(workgroup) * workgroup_size + local;
    if vec4_index >= (uniforms.parameters + 3u) / 4u { return; }
    store_workspace(uniforms.copy + vec4_index, load_param(vec4_index));
}
