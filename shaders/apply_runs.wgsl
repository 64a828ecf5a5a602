// diff_src = gamma · r · ((diff_dst − a) − x̂ · b) with a = Σ diff_dst / m and b = Σ diff_dst · x̂ / m,
// for tensors whose channels are runs of `inner` consecutive elements. A workgroup takes a tile:
// `run_block` runs, or one chunk of one run; `lanes` invocations share a run. Every quad is stored by
// one invocation, the one in whose chunk it begins; where a run ends inside of a quad, each element
// finds its own run.
// With constant statistics a and b are 0 and src is not bound.
//
// Bindings: src (batch statistics only), diff_dst read; workspace read; diff_src written, or
// diff_dst in place.
// Moves 2 n elements in (n with constant statistics), n out.

struct Uniforms {
    runs: u32,       // outer · channels
    channels: u32,
    inner: u32,
    run_block: u32,
    chunk: u32,
    chunks: u32,
    lanes: u32,
    first_tile: u32,
    end_tile: u32,
    workgroups: u32,
    window: u32,
    length: u32,
    stats: u32,
    coefficients: u32,
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

override workgroup_size: u32 = 64u;
override weighted: bool = false;
override batch_statistics: bool = true;

@compute @workgroup_size(workgroup_size)
fn apply_runs(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = local % uniforms.lanes;
    let sublane = local / uniforms.lanes;
    let sublanes = workgroup_size / uniforms.lanes;

    for (var tile = uniforms.first_tile + workgroup.x; tile < uniforms.end_tile; tile += uniforms.workgroups) {
        let chunk = tile % uniforms.chunks;
        let block = tile / uniforms.chunks;
        let run_end = min(uniforms.runs, (block + 1u) * uniforms.run_block);
        for (var run = block * uniforms.run_block + sublane; run < run_end; run += sublanes) {
            let channel = channel_of(run);
            let stats = workspace[uniforms.stats + channel];
            let coefficients = workspace[uniforms.coefficients + channel];
            let run_start = run * uniforms.inner - uniforms.window;
            let range = chunk_range(run, chunk);
            let end = range.y / 4u;
            for (var quad = (range.x + 3u) / 4u + lane; quad < end; quad += uniforms.lanes) {
                var d = load_diff_dst(quad);
                if weighted { d *= weights_at(4u * quad, run_start); }
                if batch_statistics {
                    let xhat = (load_src(quad) - real4(stats.x)) * stats.y;
                    d = (d - real4(coefficients.x)) - xhat * coefficients.y;
                }
                store_diff_src(quad, d * coefficients.z);
            }
            if lane == 0u && range.y % 4u != 0u && 4u * end >= range.x {
                apply_last_quad(end, run, run_start);
            }
        }
    }
}

// The quad that begins in a chunk of `run` and ends outside of it.
fn apply_last_quad(quad: u32, run: u32, run_start: u32) {
    let run_end = run_start + uniforms.inner;
    var d = load_diff_dst(quad);
    if weighted { d *= weights_at(4u * quad, run_start); }
    var mean = real4();
    var r = real4();
    var a = real4();
    var b = real4();
    var scale = real4();
    for (var i = 0u; i < 4u; i++) {
        var element_run = run;
        if 4u * quad + i >= run_end {
            element_run = min(run + 1u + (4u * quad + i - run_end) / uniforms.inner, uniforms.runs - 1u);
        }
        let channel = channel_of(element_run);
        let stats = workspace[uniforms.stats + channel];
        let coefficients = workspace[uniforms.coefficients + channel];
        mean[i] = stats.x;
        r[i] = stats.y;
        a[i] = coefficients.x;
        b[i] = coefficients.y;
        scale[i] = coefficients.z;
    }
    if batch_statistics {
        d = (d - a) - (load_src(quad) - mean) * r * b;
    }
    store_part_diff_src(quad, d * scale, min(4u, uniforms.length - 4u * quad));
}
