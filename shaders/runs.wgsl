// What the kernels over runs share. A run is the `inner` consecutive elements of one channel at one
// outer index; run number n · channels + c, or with general axes as those say. Indices are relative to
// the bound window, which begins at element `window` of the tensor (a multiple of 4).

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

// gamma at the four elements from `element` on; `run_start` is where their run begins. Elements just
// outside of the run belong to its neighbours, whose weights repeat with period `inner`.
fn weights_at(element: u32, run_start: u32) -> real4 {
    let inner = uniforms.inner;
    if inner % 4u == 0u {
        return workspace[uniforms.weights + (element - run_start) / 4u];
    }
    var weights = real4();
    for (var i = 0u; i < 4u; i++) {
        let distance = element + i - run_start;
        let before = distance >= 0x80000000u; // at most 3 before the run
        let j = select(distance % inner, (inner - (0u - distance) % inner) % inner, before);
        weights[i] = workspace[uniforms.weights + j / 4u][j % 4u];
    }
    return weights;
}
