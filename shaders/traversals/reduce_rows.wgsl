// Sums of layer norm's rows and columns in one reading. With d = diff_dst · gamma it writes for each row
// workspace[row_partials + row · row_parts + part] = (Σd, Σ d·x̂, 0, 0), a part of the columns for `joined` invocations
// side by side; or if these have the whole row (`one_part`), the means of its sums behind its statistics,
// workspace[stats + row] = (mean, r, Σd / m, Σ d·x̂ / m). In the end it writes Σ and Σ·x̂ of diff_dst for each column:
// as partial sums, or if a workgroup walks all rows as diff_beta and diff_gamma. Where rows do not begin at quads, an
// invocation puts its four columns together from two quads.
//
// Bindings: src, diff_dst, gamma (optional: 1, or in the workspace) read; workspace read and written; diff_gamma,
// diff_beta (optional) written.
// Moves 2 n elements in.

@compute @workgroup_size(workgroup_size)
fn reduce_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = tile_at(index, local);

    var gamma: array<Packet, column_packets>;
    var sums: array<array<Sums, packet_quads>, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            let quad = (tile.packet + p * lanes) * packet_quads + k;
            var weights = gamma_quad(quad);
            if !complete {
                weights = select(real4(), weights, columns_of(quad, 0u) < vec4(uniforms.columns));
            }
            gamma[p][k] = weights;
            sums[p][k] = Sums();
        }
    }

    let part = (index % uniforms.column_tiles * lanes + local % lanes) / joined;
    // Not from `tile`, which differs between invocations: they all run this loop alike.
    let group = index / uniforms.column_tiles;
    let rows = rows_of(group);
    for (var base = rows.x; base < rows.y; base += uniforms.row_step) {
        // Past the last row, that one stands in, without columns: all invocations add up rows.
        let own = base + local / lanes;
        let row = min(own, uniforms.rows - 1u);
        let end = select(0u, uniforms.columns, own < uniforms.rows);
        let record = load_workspace(uniforms.stats + row);
        let cell = row_cell(record);
        let first = first_packet_of(row);
        var total = Sums();
        for (var p = 0u; p < column_packets; p++) {
            let own_packet = tile.packet + p * lanes;
            let packet = packet_in_window(first, own_packet);
            var diff_dst_packet = load_packet_diff_dst(packet);
            var src_packet = load_packet_src(packet);
            if !aligned {
                let next = packet_in_window(first, own_packet + 1u);
                let shift = shift_of(row);
                diff_dst_packet[0] = shifted(diff_dst_packet[0], load_packet_diff_dst(next)[0], shift);
                src_packet[0] = shifted(src_packet[0], load_packet_src(next)[0], shift);
            }
            for (var k = 0u; k < packet_quads; k++) {
                var inside = vec4(true);
                if !complete || lanes < workgroup_size {
                    inside = columns_of(own_packet * packet_quads + k, 0u) < vec4(end);
                }
                let own_terms = terms(element_of(src_packet[k], diff_dst_packet[k], cell), inside);
                sums[p][k] = merge(sums[p][k], own_terms);
                total = merge(total, weigh(own_terms, gamma[p][k]));
            }
        }
        let joint = words_of_record(row_sum(local, joined, total));
        let counts = (complete || part < uniforms.row_parts) && (lanes == workgroup_size || own < uniforms.rows);
        if local % joined == 0u && counts {
            if one_part {
                store_workspace(uniforms.stats + row, real4(record.xy, joint.xy * uniforms.inverse_count));
            } else {
                store_workspace(uniforms.row_partials + row * uniforms.row_parts + part, joint);
            }
        }
    }

    if !summed { return; }
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            let quad = (tile.packet + p * lanes) * packet_quads + k;
            let total = sums_of_columns(local, sums[p][k]);
            if !direct {
                write_columns(local, group, 4u * quad, total);
            } else if local < lanes && 4u * quad < uniforms.columns {
                store_parameter_gradients(quad, total, min(4u, uniforms.columns - 4u * quad));
            }
        }
    }
}
