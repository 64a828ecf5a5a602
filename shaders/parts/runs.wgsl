// What the kernels over runs share. A run is the `inner` consecutive elements of one channel at one
// outer index; run number n · channels + c, or with general axes as those say. Indices are relative to
// the bound window, which begins at element `window` of the tensor (a multiple of a packet's).

fn run_of(n: u32, channel: u32) -> u32 {
    if general { return join_axes(channel, n); }
    return n * uniforms.channels + channel;
}

fn channel_of(run: u32) -> u32 {
    if general { return kept_part(run); }
    return run % uniforms.channels;
}

// The first element of a run's chunk, and the one after its last.
fn chunk_range(run: u32, chunk: u32) -> vec2<u32> {
    let first = chunk * uniforms.chunk;
    let start = run * uniforms.inner + first - uniforms.window;
    return vec2(start, start + min(uniforms.chunk, uniforms.inner - first));
}
