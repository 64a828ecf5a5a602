// diff_src = r · ((d − a) − x̂ · b) with d = diff_dst · gamma and the row's means a = Σd / m and
// b = Σ d·x̂ / m, by the tiles of the reduction by rows. A quad is stored by the invocation in whose row it
// begins; where the row ends inside of it, the elements behind are the next rows'.
//
// Bindings: src, diff_dst, gamma (optional: 1, or in the workspace) read; workspace read; diff_src written, or
// diff_dst in place.
// Moves 2 n elements in, n out.

@compute @workgroup_size(workgroup_size)
fn apply_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = tile_at(index, local);

    var gamma: array<Packet, column_packets>;
    for (var p = 0u; p < column_packets; p++) {
        for (var k = 0u; k < packet_quads; k++) {
            if aligned { gamma[p][k] = gamma_quad((tile.packet + p * lanes) * packet_quads + k); }
        }
    }

    for (var row = tile.row; row < tile.end; row += uniforms.row_step) {
        let own = applied_cell(row);
        var next = own;
        if !aligned { next = applied_cell(min(row + 1u, uniforms.rows - 1u)); }
        let shift = shift_of(row);
        let first = first_packet_of(row);
        for (var p = 0u; p < column_packets; p++) {
            let own_packet = tile.packet + p * lanes;
            let packet = packet_in_window(first, own_packet);
            var diff_dst = load_packet_diff_dst(packet);
            var src = load_packet_src(packet);
            var written = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                let quad_of_row = own_packet * packet_quads + k;
                let columns = columns_of(quad_of_row, shift);
                var weights = gamma[p][k];
                if !aligned { weights = gamma_of(quad_of_row, shift); }
                var quad = result_of(src[k], diff_dst[k], own, weights);
                if narrow {
                    // By `select`, as for runs.
                    for (var i = 0u; i < 4u; i++) {
                        let other = applied_cell(min(row + columns[i] / uniforms.columns, uniforms.rows - 1u));
                        let result_of_other = result_of(src[k], diff_dst[k], other, weights);
                        quad = select(quad, result_of_other, vec4(i) == vec4(0u, 1u, 2u, 3u));
                    }
                } else if !aligned {
                    let result_of_next = result_of(src[k], diff_dst[k], next, weights);
                    quad = select(quad, result_of_next, columns >= vec4(uniforms.columns));
                }
                written[k] = quad;
            }
            if complete || columns_of(own_packet * packet_quads, shift).x < uniforms.columns {
                if whole {
                    store_packet_diff_src(packet, written);
                } else {
                    let left = uniforms.length - packet * packet_elements;
                    store_part_packet_diff_src(packet, written, min(packet_elements, left));
                }
            }
        }
    }
}

fn applied_cell(row: u32) -> Cell {
    let record = load_workspace(uniforms.stats + row);
    var means = real4(record.zw, real2());
    if !one_part { means = load_workspace(uniforms.means + row); }
    return combine(row_cell(record), splat(means));
}

fn result_of(src: real4, diff_dst: real4, row: Cell, gamma: real4) -> real4 {
    var cell = row;
    cell.gamma = gamma;
    return result(element_of(src, diff_dst, cell), cell);
}

// gamma of the elements of a row's quad, where rows do not begin at quads; behind the row's end begins the next one.
fn gamma_of(quad: u32, shift: u32) -> real4 {
    if !scaled { return real4(1.0); }
    let columns = columns_of(quad, shift);
    var gamma = gamma_quad(quad);
    if shift > 0u { gamma = shifted(gamma_quad(max(quad, 1u) - 1u), gamma, 4u - shift); }
    if columns.x < uniforms.columns && columns.w >= uniforms.columns {
        for (var i = 0u; i < 4u; i++) {
            let column = columns[i] % uniforms.columns;
            gamma = select(gamma, real4(gamma_quad(column / 4u)[column % 4u]), vec4(i) == vec4(0u, 1u, 2u, 3u));
        }
    }
    return gamma;
}
