// Partial sums of diff_dst and diff_dst · x̂ per channel, for tensors whose channels are runs of
// `inner` consecutive elements (NCX batch norm, the rows of layer norm). A tile is `outer_block` runs
// of one channel, or one chunk of one run; a workgroup takes a tile and writes
// workspace[partials + split · channels + c] = (Σ, Σ·x̂, 0, 0). `lanes` invocations share a run.
// A weighted reduction multiplies diff_dst by gamma of the column first.
//
// Bindings: src, diff_dst read; workspace read and written.
// Moves 2 n elements in.

struct Uniforms {
    outer: u32,
    channels: u32,
    inner: u32,
    outer_block: u32,
    chunk: u32,      // elements of a run that a tile takes
    chunks: u32,     // tiles along a run
    lanes: u32,
    first_tile: u32,
    end_tile: u32,
    workgroups: u32, // in the whole dispatch
    window: u32,
    length: u32,     // elements from the window's start to the tensor's end
    stats: u32,
    partials: u32,
    weights: u32,
    axis0: u32,
    axis1: u32,
    axis2: u32,
    axis3: u32,
    axis4: u32,
    axis5: u32,
    axis6: u32,
    axis7: u32,
    kept_axes: u32,
}

override weighted: bool = false;

@compute @workgroup_size(workgroup_size)
fn reduce_runs(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = local % uniforms.lanes;
    let sublane = local / uniforms.lanes;
    let sublanes = workgroup_size / uniforms.lanes;

    for (var tile = uniforms.first_tile + workgroup.x; tile < uniforms.end_tile; tile += uniforms.workgroups) {
        let chunk = tile % uniforms.chunks;
        let channel = (tile / uniforms.chunks) % uniforms.channels;
        let block = tile / uniforms.chunks / uniforms.channels;
        let stats = workspace[uniforms.stats + channel];

        var sum = real4();
        var sum_xhat = real4();
        let outer_end = min(uniforms.outer, (block + 1u) * uniforms.outer_block);
        for (var n = block * uniforms.outer_block + sublane; n < outer_end; n += sublanes) {
            let run = run_of(n, channel);
            let run_start = run * uniforms.inner - uniforms.window;
            let range = chunk_range(run, chunk);
            let end = range.y / 4u;
            for (var quad = (range.x + 3u) / 4u + lane; quad < end; quad += uniforms.lanes) {
                var d = load_diff_dst(quad);
                if weighted { d *= weights_at(4u * quad, run_start); }
                sum += d;
                sum_xhat += d * ((load_src(quad) - real4(stats.x)) * stats.y);
            }
            // The quads that the range only begins or ends in; other elements there count as 0.
            for (var edge = lane; edge < 2u; edge += uniforms.lanes) {
                let bound = select(range.x, range.y, edge == 1u);
                let quad = bound / 4u;
                let also_head = edge == 1u && range.x % 4u != 0u && range.x / 4u == quad;
                if bound % 4u != 0u && !also_head {
                    let elements = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
                    let inside = (elements >= vec4(range.x)) & (elements < vec4(range.y));
                    var d = load_diff_dst(quad);
                    if weighted { d *= weights_at(4u * quad, run_start); }
                    let xhat = (load_src(quad) - real4(stats.x)) * stats.y;
                    sum += select(real4(), d, inside);
                    sum_xhat += select(real4(), d * xhat, inside);
                }
            }
        }

        workgroup_sum(local, real2(
            (sum.x + sum.y) + (sum.z + sum.w),
            (sum_xhat.x + sum_xhat.y) + (sum_xhat.z + sum_xhat.w),
        ), 1u);
        if local == 0u {
            let split = block * uniforms.chunks + chunk;
            workspace[uniforms.partials + split * uniforms.channels + channel] = real4(scratch[0], real2());
        }
        workgroupBarrier(); // scratch is written again in the next turn
    }
}
