// What reduce_rows and apply_rows share. They do the rows that the fused kernels cannot: too long for registers, or
// on an adapter with few bindings.
// A tile is some rows by `lanes` · `column_packets` of the packets that a row touches.

override aligned: bool = false; // every row begins at a quad

struct Tile {
    row: u32, // the invocation's first
    end: u32, // behind the last
    shift: u32,
    packet: u32, // the first of the row's
}

fn tile_at(tile: u32, local: u32) -> Tile {
    let rows = rows_of(tile / uniforms.column_tiles);
    let row = rows.x + local / lanes;
    return Tile(
        row,
        rows.y,
        shift_of(row),
        tile % uniforms.column_tiles * lanes * column_packets + local % lanes,
    );
}

// gamma of a quad's columns; behind the row's end begins the next row.
fn gamma_at(shift: u32, quad: u32) -> real4 {
    if !scaled { return real4(1.0); }
    let copy = select(shift, 0u, aligned);
    return load_workspace(uniforms.weights + copy * uniforms.row_quads + min(quad, uniforms.row_quads - 1u));
}

// A packet of a row, or what stands in for one that is behind the window.
fn packet_in_window(first: u32, packet: u32) -> u32 {
    if complete { return first + packet; }
    return min(first + packet, uniforms.last_packet);
}
