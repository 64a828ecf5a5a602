// gamma as reals in the workspace, where a kernel reads it per element: layer norm's gamma lies along
// the rows that are reduced. An invocation does four elements.
//
// Bindings: gamma read; workspace written. Moves C elements in, C out.

struct Uniforms {
    channels: u32,
    weights: u32,     // where they begin in workspace
    grid_width: u32, // workgroups along x
}

override workgroup_size: u32 = 64u;

@compute @workgroup_size(workgroup_size)
fn pack_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let quad = tile_of(workgroup) * workgroup_size + local;
    if quad >= (uniforms.channels + 3u) / 4u { return; }

    workspace[uniforms.weights + quad] = load_gamma(quad);
}
