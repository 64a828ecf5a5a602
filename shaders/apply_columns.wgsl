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

    let tile = apply_tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
    let row_tile = tile / uniforms.column_tiles % uniforms.row_tiles;
    let first = first_column(tile, lane_of(local, uniforms.column_lanes));

    var mean: array<Packet, column_packets>;
    var r: array<Packet, column_packets>;
    var a: array<Packet, column_packets>;
    var b: array<Packet, column_packets>;
    var scale: array<Packet, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        var place = place_of(batch, column_of(first, p));
        for (var k = 0u; k < packet_quads; k++) {
            for (var i = 0u; i < 4u; i++) {
                let stats = load_workspace(uniforms.stats + place.channel);
                var means = real4();
                if batch_statistics { means = load_workspace(uniforms.means + place.channel); }
                mean[p][k][i] = stats.x;
                r[p][k][i] = stats.y;
                a[p][k][i] = means.x;
                b[p][k][i] = means.y;
                scale[p][k][i] = stats.z;
                place = next_place(place);
            }
        }
    }

    let row_end = min(uniforms.rows, (row_tile + 1u) * uniforms.tile_rows);
    for (var row = row_tile * uniforms.tile_rows + row_lane; row < row_end; row += row_lanes) {
        let row_start = row_of(batch, row) * uniforms.width_packets - uniforms.window / packet_elements;
        for (var p = 0u; p < column_packets; p++) {
            let packet = packet_of(row_start, first, p);
            var diff_dst = load_packet_diff_dst(packet);
            var src = Packet();
            if batch_statistics { src = load_packet_src(packet); }
            var result = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                var d = diff_dst[k];
                if batch_statistics {
                    let xhat = (src[k] - mean[p][k]) * r[p][k];
                    d = (d - a[p][k]) - xhat * b[p][k];
                }
                result[k] = d * scale[p][k];
            }
            store_in_row(row_start, first, p, result);
        }
    }
}
