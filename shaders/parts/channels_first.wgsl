// Shared by the channels-first kernels. A plane is the `inner` consecutive elements of one channel at one index n of N:
// plane number n · channels + c, or with general axes the index that axes.wgsl makes. Indices are relative to the bound
// window, which begins at element `window` of the tensor, a multiple of a vector's elements.

#import axes

fn plane_of(n: u32, channel: u32) -> u32 {
    if general { return join_axes(uniforms.kept_axes, channel, n); }
    return n * uniforms.channels + channel;
}

fn channel_of(plane: u32) -> u32 {
    if general { return kept_index(uniforms.kept_axes, plane); }
    return plane % uniforms.channels;
}

// The first element of a plane's chunk, and the one after its last.
fn chunk_range(plane: u32, chunk: u32) -> vec2<u32> {
    let first = chunk * uniforms.chunk;
    let start = plane * uniforms.inner + first - uniforms.window;
    return vec2(start, start + min(uniforms.chunk, uniforms.inner - first));
}
