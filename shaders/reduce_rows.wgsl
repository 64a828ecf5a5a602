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
    var sum: array<Packet, column_packets>;
    var sum_xhat: array<Packet, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            let quad = (tile.packet + p * lanes) * packet_quads + k;
            var weights = gamma_quad(quad);
            if !complete {
                weights = select(real4(), weights, columns_of(quad, 0u) < vec4(uniforms.columns));
            }
            gamma[p][k] = weights;
            sum[p][k] = real4();
            sum_xhat[p][k] = real4();
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
        let stats = load_workspace(uniforms.stats + row);
        let first = first_packet_of(row);
        var total = real4();
        var total_xhat = real4();
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
                var diff_dst = diff_dst_packet[k];
                var diff_dst_xhat = diff_dst * ((src_packet[k] - real4(stats.x)) * stats.y);
                if !complete || lanes < workgroup_size {
                    let inside = columns_of(own_packet * packet_quads + k, 0u) < vec4(end);
                    diff_dst = select(real4(), diff_dst, inside);
                    diff_dst_xhat = select(real4(), diff_dst_xhat, inside);
                }
                sum[p][k] += diff_dst;
                sum_xhat[p][k] += diff_dst_xhat;
                total += diff_dst * gamma[p][k];
                total_xhat += diff_dst_xhat * gamma[p][k];
            }
        }
        let joint = row_sum(local, joined, real2(
            (total.x + total.y) + (total.z + total.w),
            (total_xhat.x + total_xhat.y) + (total_xhat.z + total_xhat.w),
        ));
        let counts = (complete || part < uniforms.row_parts) && (lanes == workgroup_size || own < uniforms.rows);
        if local % joined == 0u && counts {
            if one_part {
                store_workspace(uniforms.stats + row, real4(stats.xy, joint * uniforms.inverse_count));
            } else {
                store_workspace(uniforms.row_partials + row * uniforms.row_parts + part, real4(joint, real2()));
            }
        }
    }

    if !summed { return; }
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            let quad = (tile.packet + p * lanes) * packet_quads + k;
            let total = sums_of_columns(local, sum[p][k], sum_xhat[p][k]);
            if !direct {
                write_columns(local, group, 4u * quad, total);
            } else if local < lanes && 4u * quad < uniforms.columns {
                let count = min(4u, uniforms.columns - 4u * quad);
                store_part_diff_beta(quad, total.sum, count);
                store_part_diff_gamma(quad, total.sum_xhat, count);
            }
        }
    }
}
