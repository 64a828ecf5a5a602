// The whole gradient in one dispatch, for channels that are runs of `inner` consecutive elements and
// short enough that their second reading comes from a cache. A workgroup takes a block of channels, a
// multiple of 4: it adds up Σ diff_dst and Σ diff_dst · x̂ of each, `lanes` invocations a channel, and
// then, behind a barrier, writes diff_src = gamma · r · ((diff_dst − a) − x̂ · b) with the means a and b
// of the sums. A block begins at a whole quad at every outer index, so that no other workgroup writes
// to its quads.
// `weighted` (layer norm: the channels are rows): gamma lies along the run and multiplies diff_dst
// first, and there are no parameter gradients.
//
// Bindings: src, diff_dst, mean, variance, gamma (optional: 1) read; diff_src written, or diff_dst in
// place; diff_gamma, diff_beta (optional) written.
// Moves 2 n elements in, n out, where the second reading is cached; else 4 n in.

struct Uniforms {
    outer: u32,
    channels: u32,   // also the length of mean, variance and the parameter gradients
    inner: u32,
    gamma_length: u32,
    block: u32,      // channels of a workgroup, at most workgroup_size
    lanes: u32,
    first_block: u32,
    end_block: u32,
    workgroups: u32, // in the whole dispatch
    window: u32,
    length: u32,     // elements from the window's start to the tensor's end
    epsilon: real,
    inverse_count: real,
}

override workgroup_size: u32 = 64u;
override weighted: bool = false;

var<workgroup> scratch: array<real2, workgroup_size>;
var<workgroup> stats: array<real4, workgroup_size>;   // mean, r, gamma · r, 0
var<workgroup> totals: array<real2, workgroup_size>;

@compute @workgroup_size(workgroup_size)
fn fused_runs(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lanes = uniforms.lanes;
    let lane = local % lanes;
    let sublane = local / lanes;
    let sublanes = workgroup_size / lanes;

    for (var index = uniforms.first_block + workgroup.x; index < uniforms.end_block; index += uniforms.workgroups) {
        let first = index * uniforms.block;
        let present = min(uniforms.block, uniforms.channels - first);

        for (var i = local; i < present; i += workgroup_size) {
            let channel = first + i;
            let mean = load_mean(channel / 4u)[channel % 4u];
            let variance = load_variance(channel / 4u)[channel % 4u];
            let r = real(1.0) / sqrt(variance + uniforms.epsilon);
            var scale = r;
            if !weighted { scale *= load_gamma(channel / 4u)[channel % 4u]; }
            stats[i] = real4(mean, r, scale, 0.0);
        }
        workgroupBarrier();

        for (var turn = 0u; turn < uniforms.block; turn += sublanes) {
            let i = turn + sublane;
            var sum = real2();
            if i < present {
                sum = sums_of_channel(first + i, i, lane);
            }
            scratch[local] = sum;
            workgroupBarrier();
            for (var stride = lanes / 2u; stride > 0u; stride /= 2u) {
                if lane < stride {
                    scratch[local] += scratch[local + stride];
                }
                workgroupBarrier();
            }
            if lane == 0u && i < uniforms.block {
                totals[i] = scratch[local];
            }
            workgroupBarrier();
        }

        storageBarrier(); // diff_dst was read before diff_src is written in its place
        for (var quad = local; quad < (present + 3u) / 4u; quad += workgroup_size) {
            let count = min(4u, present - 4u * quad);
            let i = 4u * quad;
            let diff_beta = real4(totals[i].x, totals[i + 1u].x, totals[i + 2u].x, totals[i + 3u].x);
            let diff_gamma = real4(totals[i].y, totals[i + 1u].y, totals[i + 2u].y, totals[i + 3u].y);
            store_part_diff_beta(first / 4u + quad, diff_beta, count);
            store_part_diff_gamma(first / 4u + quad, diff_gamma, count);
        }
        for (var i = sublane; i < present; i += sublanes) {
            apply_to_channel(first + i, i, lane);
        }
        workgroupBarrier(); // the arrays are written again in the next turn
    }
}

// The first element of a run, relative to the window.
fn run_start_of(n: u32, channel: u32) -> u32 {
    return (n * uniforms.channels + channel) * uniforms.inner - uniforms.window;
}

fn weighted_diff_dst(quad: u32, run_start: u32) -> real4 {
    let d = load_diff_dst(quad);
    if !weighted { return d; }
    let inner = uniforms.inner;
    if inner % 4u == 0u { return d * load_gamma(quad - run_start / 4u); }
    var weights = real4();
    for (var i = 0u; i < 4u; i++) {
        // Elements outside of the run belong to its neighbours: gamma repeats with period `inner`.
        let distance = 4u * quad + i - run_start;
        let before = distance >= 0x80000000u; // at most 3 before the run
        let j = select(distance % inner, (inner - (0u - distance) % inner) % inner, before);
        weights[i] = load_gamma(j / 4u)[j % 4u];
    }
    return d * weights;
}

// This invocation's share of a channel's sums.
fn sums_of_channel(channel: u32, i: u32, lane: u32) -> real2 {
    let mean = stats[i].x;
    let r = stats[i].y;
    var sum = real4();
    var sum_xhat = real4();
    for (var n = 0u; n < uniforms.outer; n++) {
        let start = run_start_of(n, channel);
        let end = start + uniforms.inner;
        for (var quad = (start + 3u) / 4u + lane; quad < end / 4u; quad += uniforms.lanes) {
            let d = weighted_diff_dst(quad, start);
            sum += d;
            sum_xhat += d * ((load_src(quad) - real4(mean)) * r);
        }
        // The quads that the run only begins or ends in; other elements there count as 0.
        for (var edge = lane; edge < 2u; edge += uniforms.lanes) {
            let bound = select(start, end, edge == 1u);
            let quad = bound / 4u;
            let also_head = edge == 1u && start % 4u != 0u && start / 4u == quad;
            if bound % 4u != 0u && !also_head {
                let elements = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
                let inside = (elements >= vec4(start)) & (elements < vec4(end));
                let d = weighted_diff_dst(quad, start);
                let xhat = (load_src(quad) - real4(mean)) * r;
                sum += select(real4(), d, inside);
                sum_xhat += select(real4(), d * xhat, inside);
            }
        }
    }
    return real2((sum.x + sum.y) + (sum.z + sum.w), (sum_xhat.x + sum_xhat.y) + (sum_xhat.z + sum_xhat.w));
}

fn apply_to_channel(channel: u32, i: u32, lane: u32) {
    let record = stats[i];
    let means = totals[i] * uniforms.inverse_count;
    for (var n = 0u; n < uniforms.outer; n++) {
        let start = run_start_of(n, channel);
        let end = start + uniforms.inner;
        for (var quad = (start + 3u) / 4u + lane; quad < end / 4u; quad += uniforms.lanes) {
            let d = weighted_diff_dst(quad, start);
            let xhat = (load_src(quad) - real4(record.x)) * record.y;
            store_diff_src(quad, ((d - real4(means.x)) - xhat * means.y) * record.z);
        }
        if lane == 0u && end % 4u != 0u && 4u * (end / 4u) >= start {
            apply_last_quad(end / 4u, channel, i, start);
        }
    }
}

// The quad that begins in a channel's run and ends outside of it, in the runs of the block's next
// channels or past the tensor's end.
fn apply_last_quad(quad: u32, channel: u32, i: u32, start: u32) {
    let d = weighted_diff_dst(quad, start);
    let src = load_src(quad);
    let count = min(4u, uniforms.length - 4u * quad);
    var result = real4();
    for (var k = 0u; k < count; k++) {
        let other = i + (4u * quad + k - start) / uniforms.inner;
        let record = stats[other];
        let means = totals[other] * uniforms.inverse_count;
        let xhat = (src[k] - record.x) * record.y;
        result[k] = ((d[k] - means.x) - xhat * means.y) * record.z;
    }
    store_part_diff_src(quad, result, count);
}
