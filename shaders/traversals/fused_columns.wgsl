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
    var cells: array<Cell, packet_quads>;
    var sums: array<Sums, packet_quads>;
    for (var k = 0u; k < packet_quads; k++) {
        let quad = column * packet_quads + k;
        cells[k] = statistics_of(quad, uniforms.epsilon);
        cells[k].gamma = load_gamma(quad);
        sums[k] = Sums();
    }

    // In blocks, so that the roundings of equal terms do not pile up.
    for (var start = row_lane; start < rows; start += block_rows * row_lanes) {
        let end = min(rows, start + block_rows * row_lanes);
        var blocks = array<Block, packet_quads>();
        var first = Packet();
        if in_blocks { first = load_packet_src(start * width + column); }
        for (var k = 0u; k < packet_quads; k++) {
            blocks[k] = begin(first[k]);
        }
        for (var row = start; row < end; row += row_lanes) {
            var diff_dst = load_packet_diff_dst(row * width + column);
            var src = load_packet_src(row * width + column);
            for (var k = 0u; k < packet_quads; k++) {
                blocks[k] = accumulate(blocks[k], element_of(src[k], diff_dst[k], cells[k]), vec4(true));
            }
        }
        for (var k = 0u; k < packet_quads; k++) {
            sums[k] = end_block(sums[k], blocks[k]);
        }
    }

    for (var k = 0u; k < packet_quads; k++) {
        let quad = column * packet_quads + k;
        let total = stacked_sum(local, sums[k]);
        if row_lane == 0u && own < width { store_parameter_gradients(quad, total, 4u); }
        cells[k] = combine(cells[k], means_of(total, uniforms.inverse_count));
    }
    for (var row = row_lane; row < rows; row += row_lanes) {
        let packet = row * width + column;
        var diff_dst = load_packet_diff_dst(packet);
        var src = load_packet_src(packet);
        var written = Packet();
        for (var k = 0u; k < packet_quads; k++) {
            written[k] = result(element_of(src[k], diff_dst[k], cells[k]), cells[k]);
        }
        store_packet_diff_src(packet, written);
    }
}
