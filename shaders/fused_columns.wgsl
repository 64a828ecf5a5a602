// The whole gradient in one dispatch, for small tensors whose channels are the last axis and fill whole
// quads (NXC, rank 2). An invocation owns a quad of channels in every `row_lanes`-th row: it adds up
// Σ diff_dst and Σ diff_dst · x̂; the invocations of a workgroup that own the same channels add up in a
// fixed order; then it writes diff_src = gamma · r · ((diff_dst − a) − x̂ · b), with the means a and b of
// the sums, where it has read.
//
// Bindings: src, diff_dst, mean, variance, gamma (optional: 1) read; diff_src written, or diff_dst in
// place; diff_gamma, diff_beta (optional) written.
// Moves 2 n elements in, n out, where the second reading is cached; else 4 n in.

struct Uniforms {
    rows: u32,
    channels: u32,     // a multiple of 4, also the length of mean, variance and the parameter gradients
    column_lanes: u32, // invocations side by side in a workgroup
    grid_width: u32,   // workgroups along x
    length: u32,       // for buffers that end inside of a quad, which these do not
    epsilon: real,
    inverse_count: real,
}

override workgroup_size: u32 = 64u;

@compute @workgroup_size(workgroup_size)
fn fused_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let width = uniforms.channels / 4u;
    let row_lanes = workgroup_size / uniforms.column_lanes;
    let row_lane = local / uniforms.column_lanes;
    let own = tile_of(workgroup) * uniforms.column_lanes + local % uniforms.column_lanes;
    // Beside the last quad of channels there are no rows to read, and that one's statistics stand in.
    let column = min(own, width - 1u);
    let rows = select(uniforms.rows, 0u, own >= width);
    let mean = load_mean(column);
    let r = real4(1.0) / sqrt(load_variance(column) + real4(uniforms.epsilon));

    // In blocks of 64 rows, so that the roundings of equal terms do not pile up.
    var sum = real4();
    var sum_xhat = real4();
    for (var block = row_lane; block < rows; block += 64u * row_lanes) {
        let end = min(rows, block + 64u * row_lanes);
        var some = real4();
        var some_xhat = real4();
        for (var row = block; row < end; row += row_lanes) {
            let d = load_diff_dst(row * width + column);
            some += d;
            some_xhat += d * ((load_src(row * width + column) - mean) * r);
        }
        sum += some;
        sum_xhat += some_xhat;
    }

    let total = stacked_sum(local, sum, sum_xhat);
    if own >= width { return; }
    if row_lane == 0u {
        store_diff_beta(column, total.sum);
        store_diff_gamma(column, total.sum_xhat);
    }
    let a = total.sum * uniforms.inverse_count;
    let b = total.sum_xhat * uniforms.inverse_count;
    let scale = load_gamma(column) * r;
    for (var row = row_lane; row < rows; row += row_lanes) {
        let quad = row * width + column;
        let xhat = (load_src(quad) - mean) * r;
        store_diff_src(quad, ((load_diff_dst(quad) - a) - xhat * b) * scale);
    }
}
