// Partial sums of diff_dst and diff_dst · x̂ per channel, for tensors whose channels alternate quickly
// (NXC, rank 2, short runs). The tensor is read as rows of `width` columns, whole packets made of
// `repeats` outer indices of channels · inner elements; column j is of channel (j / inner) mod channels. A single row
// may end inside of its last packet.
// An invocation owns some packets of columns, `column_lanes` apart, and walks the rows of a split; the
// invocations of a workgroup that own the same columns add up in a fixed order.
// Written are workspace[partials + split · width + j] = (Σ, Σ·x̂, 0, 0), or `paired` from
// workspace[partials + split · width / 2] on; `folded`, where a workgroup owns whole rows, it adds the
// columns of a channel and writes workspace[partials + split · channels + c].
// `general`: a row is an index over general leading axes; for every index over those that are kept, a
// batch, the rows of the reduced ones are walked. A row is then as wide as the last axis, which is kept,
// and partial sums are at split · channels + batch · width + j.
// With constant statistics the gradient does not wait for the sums: diff_src = gamma · r · diff_dst is
// written on the way.
//
// Bindings: src, diff_dst read; workspace read and written; diff_src (optional) written, or diff_dst in
// place.
// Moves 2 n elements in, and n out if diff_src is bound.

@compute @workgroup_size(workgroup_size)
fn reduce_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row_lanes = group_of(workgroup_size, uniforms.column_lanes);
    let row_lane = group_of(local, uniforms.column_lanes);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
    let split = tile / uniforms.column_tiles % uniforms.row_tiles;
    let first = first_column(tile, lane_of(local, uniforms.column_lanes));

    var sum: array<Packet, column_packets>;
    var sum_xhat: array<Packet, column_packets>;
    var mean: array<Packet, column_packets>;
    var r: array<Packet, column_packets>;
    var scale: array<Packet, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        var place = place_of(batch, column_of(first, p));
        for (var k = 0u; k < packet_quads; k++) {
            sum[p][k] = real4();
            sum_xhat[p][k] = real4();
            for (var i = 0u; i < 4u; i++) {
                let stats = load_workspace(uniforms.stats + place.channel);
                mean[p][k][i] = stats.x;
                r[p][k][i] = stats.y;
                scale[p][k][i] = stats.z;
                place = next_place(place);
            }
        }
    }

    let row_end = min(uniforms.rows, (split + 1u) * uniforms.tile_rows);
    for (var row = split * uniforms.tile_rows + row_lane; row < row_end; row += row_lanes) {
        let row_start = row_of(batch, row) * uniforms.width_packets - uniforms.window / packet_elements;
        for (var p = 0u; p < column_packets; p++) {
            let packet = packet_of(row_start, first, p);
            var diff_dst = load_packet_diff_dst(packet);
            var src = load_packet_src(packet);
            var result = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                var d = diff_dst[k];
                var d_xhat = d * ((src[k] - mean[p][k]) * r[p][k]);
                result[k] = d * scale[p][k];
                if !complete {
                    let inside = inside_tensor((row_start + column_of(first, p)) * packet_quads + k);
                    d = select(real4(), d, inside);
                    d_xhat = select(real4(), d_xhat, inside);
                }
                sum[p][k] += d;
                sum_xhat[p][k] += d_xhat;
            }
            store_in_row(row_start, first, p, result);
        }
    }

    for (var p = 0u; p < column_packets; p++) {
        let column = first + p * uniforms.column_lanes;
        for (var k = 0u; k < packet_quads; k++) {
            let total = stacked_sum(local, sum[p][k], sum_xhat[p][k]);
            sum[p][k] = total.sum;
            sum_xhat[p][k] = total.sum_xhat;
            if !folded && row_lane == 0u && column < uniforms.end_packet {
                var to = packet_elements * (split * uniforms.width_packets + column);
                if general {
                    to = split * uniforms.channels + packet_elements * (batch * uniforms.width_packets + column);
                }
                store_columns(to + 4u * k, total);
            }
        }
    }

    if !folded { return; }
    for (var p = 0u; p < column_packets; p++) {
        let column = first + p * uniforms.column_lanes;
        if row_lane == 0u && column < uniforms.end_packet {
            for (var k = 0u; k < packet_quads; k++) {
                sums[column * packet_quads + k] = sum[p][k];
                sums_xhat[column * packet_quads + k] = sum_xhat[p][k];
            }
        }
    }
    workgroupBarrier();
    let row = uniforms.channels * uniforms.inner;
    for (var channel = local; channel < uniforms.channels; channel += workgroup_size) {
        var total = real2();
        let width = packet_elements * uniforms.width_packets;
        for (var start = channel * uniforms.inner; start + uniforms.inner <= width; start += row) {
            for (var j = start; j < start + uniforms.inner; j++) {
                total += real2(sums[j / 4u][j % 4u], sums_xhat[j / 4u][j % 4u]);
            }
        }
        let to = uniforms.partials + split * uniforms.channels + channel;
        store_workspace(to, real4(total, real2()));
    }
}

// Writes the sums of four columns, the first of which is number `to` of all splits'.
fn store_columns(to: u32, total: Sums) {
    if paired {
        store_paired(uniforms.partials, to, total.sum, total.sum_xhat);
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        let record = real4(total.sum[i], total.sum_xhat[i], 0.0, 0.0);
        store_workspace(uniforms.partials + to + i, record);
    }
}
