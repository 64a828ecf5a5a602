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
    var sum: array<Packet, column_packets>;
    var sum_xhat: array<Packet, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            if scaled { gamma[p][k] = gamma_of((lane + p * lanes) * packet_quads + k, shift); }
            sum[p][k] = real4();
            sum_xhat[p][k] = real4();
        }
    }

    var d: array<Packet, column_packets>;
    var xhat: array<Packet, column_packets>;
    for (var first = rows.x; first < rows.y; first += uniforms.row_step) {
        // Past the last row, that one stands in and counts 0: barriers want all invocations.
        let own = first + local / lanes;
        let row = min(own, uniforms.rows - 1u);
        let end = select(0u, uniforms.columns, own < uniforms.rows);
        let mean = load_mean(row / 4u)[row % 4u];
        let r = real(1.0) / sqrt(load_variance(row / 4u)[row % 4u] + uniforms.epsilon);
        let row_start = first_packet_of(row);
        var row_total = real4();
        var row_total_xhat = real4();
        for (var p = 0u; p < column_packets; p++) {
            let column = lane + p * lanes;
            var packet = row_start + min(column, row_packets - 1u);
            if !aligned { packet = min(packet, uniforms.last_packet); }
            var diff_dst_packet = load_packet_diff_dst(packet);
            var src_packet = load_packet_src(packet);
            for (var k = 0u; k < packet_quads; k++) {
                var diff_dst = diff_dst_packet[k];
                let own_xhat = (src_packet[k] - real4(mean)) * r;
                var diff_dst_xhat = diff_dst * own_xhat;
                xhat[p][k] = own_xhat;
                if !aligned {
                    let inside = columns_of(column, shift) < vec4(end);
                    diff_dst = select(real4(), diff_dst, inside);
                    diff_dst_xhat = select(real4(), diff_dst_xhat, inside);
                }
                d[p][k] = diff_dst;
                if summed {
                    var counted = diff_dst;
                    var counted_xhat = diff_dst_xhat;
                    if aligned && lanes < workgroup_size {
                        counted = select(real4(), counted, own < uniforms.rows);
                        counted_xhat = select(real4(), counted_xhat, own < uniforms.rows);
                    }
                    sum[p][k] += counted;
                    sum_xhat[p][k] += counted_xhat;
                }
                if scaled {
                    diff_dst *= gamma[p][k];
                    d[p][k] = diff_dst;
                    diff_dst_xhat *= gamma[p][k];
                }
                if aligned && !complete {
                    diff_dst = select(real4(), diff_dst, column < row_packets);
                    diff_dst_xhat = select(real4(), diff_dst_xhat, column < row_packets);
                }
                row_total += diff_dst;
                row_total_xhat += diff_dst_xhat;
            }
        }
        let means = row_sum(local, lanes, real2(
            (row_total.x + row_total.y) + (row_total.z + row_total.w),
            (row_total_xhat.x + row_total_xhat.y) + (row_total_xhat.z + row_total_xhat.w),
        )) * uniforms.inverse_count;
        for (var p = 0u; p < column_packets; p++) {
            let column = lane + p * lanes;
            var result = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                result[k] = ((d[p][k] - real4(means.x)) - xhat[p][k] * means.y) * r;
            }
            if (complete || column < row_packets) && (lanes == workgroup_size || own < uniforms.rows) {
                store_in_row(row_start + column, result, columns_of(column, shift), end);
            }
        }
    }

    if !summed { return; }
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            let column = columns_of((lane + p * lanes) * packet_quads + k, shift).x;
            write_columns(local, tile, column, sums_of_columns(local, sum[p][k], sum_xhat[p][k]));
        }
    }
}
