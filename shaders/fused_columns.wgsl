// The whole gradient in one dispatch, for small tensors whose channels are the last axis and fill whole
// packets (NXC, rank 2). An invocation owns a packet of channels in every `row_lanes`-th row: it adds up
// Σ diff_dst and Σ diff_dst · x̂; the invocations of a workgroup that own the same channels add up in a
// fixed order; then it writes diff_src = gamma · r · ((diff_dst − a) − x̂ · b), with the means a and b of
// the sums, where it has read.
//
// Bindings: src, diff_dst, mean, variance, gamma (optional: 1) read; diff_src written, or diff_dst in
// place; diff_gamma, diff_beta (optional) written.
// Moves 2 n elements in, n out, where the second reading is cached; else 4 n in.

@compute @workgroup_size(workgroup_size)
fn fused_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let width = uniforms.channels / packet_elements;
    let row_lanes = group_of(workgroup_size, uniforms.column_lanes);
    let row_lane = group_of(local, uniforms.column_lanes);
    let own = tile_of(workgroup) * uniforms.column_lanes + lane_of(local, uniforms.column_lanes);
    // Beside the last packet of channels there are no rows to read, and that one's statistics stand in.
    let column = min(own, width - 1u);
    let rows = select(uniforms.rows, 0u, own >= width);
    var mean: Packet;
    var r: Packet;
    for (var k = 0u; k < packet_quads; k++) {
        let quad = column * packet_quads + k;
        mean[k] = load_mean(quad);
        r[k] = real4(1.0) / sqrt(load_variance(quad) + real4(uniforms.epsilon));
    }

    // In blocks of 64 rows, so that the roundings of equal terms do not pile up.
    var sum: Packet;
    var sum_xhat: Packet;
    for (var block = row_lane; block < rows; block += 64u * row_lanes) {
        let end = min(rows, block + 64u * row_lanes);
        var some = Packet();
        var some_xhat = Packet();
        for (var row = block; row < end; row += row_lanes) {
            let packet = row * width + column;
            var diff_dst = load_packet_diff_dst(packet);
            var src = load_packet_src(packet);
            for (var k = 0u; k < packet_quads; k++) {
                let d = diff_dst[k];
                some[k] += d;
                some_xhat[k] += d * ((src[k] - mean[k]) * r[k]);
            }
        }
        for (var k = 0u; k < packet_quads; k++) {
            sum[k] += some[k];
            sum_xhat[k] += some_xhat[k];
        }
    }

    var a: Packet;
    var b: Packet;
    var scale: Packet;
    for (var k = 0u; k < packet_quads; k++) {
        let quad = column * packet_quads + k;
        let total = stacked_sum(local, sum[k], sum_xhat[k]);
        if row_lane == 0u && own < width {
            store_diff_beta(quad, total.sum);
            store_diff_gamma(quad, total.sum_xhat);
        }
        a[k] = total.sum * uniforms.inverse_count;
        b[k] = total.sum_xhat * uniforms.inverse_count;
        scale[k] = load_gamma(quad) * r[k];
    }
    for (var row = row_lane; row < rows; row += row_lanes) {
        let packet = row * width + column;
        var diff_dst = load_packet_diff_dst(packet);
        var src = load_packet_src(packet);
        var result = Packet();
        for (var k = 0u; k < packet_quads; k++) {
            let xhat = (src[k] - mean[k]) * r[k];
            result[k] = ((diff_dst[k] - a[k]) - xhat * b[k]) * scale[k];
        }
        store_packet_diff_src(packet, result);
    }
}
