// The whole layer-norm gradient in one reading: rows are short enough for the registers of those that
// share them. Per row, with d = diff_dst · gamma, diff_src = r · ((d − Σd / m) − x̂ · Σ(d·x̂) / m); the sums
// of diff_dst and diff_dst · x̂ per column stay in registers over a walk of rows and are then written. A quad that
// two rows share is read for both, and each row's words of it are stored by themselves: no two rows share a word.
//
// Bindings: src, diff_dst, mean, variance, gamma (optional: 1) read; workspace written; diff_src written,
// or diff_dst in place.
// Moves 2 n elements in, n out.

@compute @workgroup_size(workgroup_size)
fn fused_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let lane = local % lanes;
    let row_packets = uniforms.row_quads / packet_quads;
    let rows = rows_of(tile);
    let shift = shift_of(rows.x + local / lanes);

    var gamma: array<Packet, column_packets>;
    var sums: array<array<Sums, packet_quads>, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            gamma[p][k] = real4(1.0);
            if scaled { gamma[p][k] = gamma_of((lane + p * lanes) * packet_quads + k, shift); }
            sums[p][k] = Sums();
        }
    }

    var elements: array<array<Element, packet_quads>, column_packets>;
    for (var first = rows.x; first < rows.y; first += uniforms.row_step) {
        // Past the last row, that one stands in and counts 0: barriers want all invocations.
        let own = first + local / lanes;
        let row = min(own, uniforms.rows - 1u);
        let end = select(0u, uniforms.columns, own < uniforms.rows);
        var cell = cell_of(splat(record_of_cell(statistics_of(row / 4u, uniforms.epsilon), row % 4u)));
        let row_start = first_packet_of(row);
        var total = Sums();
        for (var p = 0u; p < column_packets; p++) {
            let column = lane + p * lanes;
            var packet = row_start + min(column, row_packets - 1u);
            if !aligned { packet = min(packet, uniforms.last_packet); }
            var diff_dst = load_packet_diff_dst(packet);
            var src = load_packet_src(packet);
            for (var k = 0u; k < packet_quads; k++) {
                let element = element_of(src[k], diff_dst[k], cell);
                elements[p][k] = element;
                var inside = vec4(true);
                if !aligned {
                    inside = columns_of(column, shift) < vec4(end);
                } else if !complete {
                    inside = vec4(column < row_packets);
                }
                let own_terms = terms(element, inside);
                if summed {
                    // Rows past the last have no columns where they are not aligned.
                    var counted = own_terms;
                    if aligned && lanes < workgroup_size {
                        counted = terms(element, inside & vec4(own < uniforms.rows));
                    }
                    sums[p][k] = merge(sums[p][k], counted);
                }
                total = merge(total, weigh(own_terms, gamma[p][k]));
            }
        }
        let means = means_of(sums_of(splat(words_of_record(row_sum(local, lanes, total)))), uniforms.inverse_count);
        cell = combine(cell, means);
        for (var p = 0u; p < column_packets; p++) {
            let column = lane + p * lanes;
            var written = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                cell.gamma = gamma[p][k];
                written[k] = result(elements[p][k], cell);
            }
            if (complete || column < row_packets) && (lanes == workgroup_size || own < uniforms.rows) {
                store_in_row(row_start + column, written, columns_of(column, shift), end);
            }
        }
    }

    if !summed { return; }
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            let column = columns_of((lane + p * lanes) * packet_quads + k, shift).x;
            write_columns(local, tile, column, sums_of_columns(local, sums[p][k]));
        }
    }
}
