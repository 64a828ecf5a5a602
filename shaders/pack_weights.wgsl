// gamma as reals in the workspace, where a kernel reads it per element: layer norm's gamma lies along
// the rows that are reduced. An invocation does four elements.
//
// Bindings: gamma read; workspace written. Moves C elements in, C out.

struct Uniforms {
    channels: u32,
    weights: u32,     // where they begin in workspace
    invocations: u32, // in the whole dispatch
}

override workgroup_size: u32 = 64u;

@compute @workgroup_size(workgroup_size)
fn pack_weights(@builtin(global_invocation_id) invocation: vec3<u32>) {
    let quads = (uniforms.channels + 3u) / 4u;
    for (var quad = invocation.x; quad < quads; quad += uniforms.invocations) {
        workspace[uniforms.weights + quad] = load_gamma(quad);
    }
}
