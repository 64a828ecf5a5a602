// diff_src = gamma · r · ((diff_dst − a) − x̂ · b) with a = Σ diff_dst / m and b = Σ diff_dst · x̂ / m,
// for tensors whose channels alternate quickly. The tensor is read as rows of `width` columns, as in
// the reduction by columns; an invocation owns some packets of columns, keeps their coefficients in
// registers and walks the rows of a tile.
// `general`: rows and batches are as in the reduction by columns.
// With constant statistics a and b are 0 and src is not bound.
//
// Bindings: src (batch statistics only), diff_dst read; workspace read; diff_src written, or
// diff_dst in place.
// Moves 2 n elements in (n with constant statistics), n out.

@compute @workgroup_size(workgroup_size)
fn apply_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row_lanes = group_of(workgroup_size, uniforms.column_lanes);
    let row_lane = group_of(local, uniforms.column_lanes);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
    let row_tile = tile / uniforms.column_tiles % uniforms.row_tiles;
    let first = first_column(tile, lane_of(local, uniforms.column_lanes));

    var cells: array<array<Cell, packet_quads>, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        var place = place_of(batch, column_of(first, p));
        for (var k = 0u; k < packet_quads; k++) {
            let channels = four_channels(&place);
            var cell = cell_of(load_records(vec4(uniforms.stats) + channels));
            if batch_statistics { cell = combine(cell, load_records(vec4(uniforms.means) + channels)); }
            cells[p][k] = cell;
        }
    }

    let row_end = min(uniforms.rows, (row_tile + 1u) * uniforms.tile_rows);
    for (var row = row_tile * uniforms.tile_rows + row_lane; row < row_end; row += row_lanes) {
        let row_start = row_start_of(batch, row);
        for (var p = 0u; p < column_packets; p++) {
            let packet = packet_of(row_start, first, p);
            var diff_dst = load_packet_diff_dst(packet);
            var src = Packet();
            if batch_statistics { src = load_packet_src(packet); }
            var written = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                let element = element_of(src[k], diff_dst[k], cells[p][k]);
                if batch_statistics {
                    written[k] = result(element, cells[p][k]);
                } else {
                    written[k] = result_of_constants(element, cells[p][k]);
                }
            }
            store_in_row(row_start, first, p, written);
        }
    }
}
