// What reduce_rows and apply_rows share. They do the rows that the fused kernel cannot: too long for
// registers, not beginning at quads, or on an adapter with few bindings.
// A tile is some rows by `lanes` · `column_packets` of the packets that a row touches. All rows that an invocation
// walks begin at the same place in a quad, `shift` elements behind the quad's start, so that it keeps to the
// same columns and holds their gamma. Such rows are `row_step` apart; a tile takes one of `phases` of them.
// A quad q of a row holds columns 4q − shift to 4q − shift + 3. Packets of two quads are for rows that begin at
// packets.

override aligned: bool = false; // every row begins at a quad

struct Tile {
    group: u32, // of tiles side by side
    row: u32,   // the invocation's first
    end: u32,   // behind the last
    shift: u32,
    packet: u32, // the first of the row's
}

// A tile's first row, and the end of its rows: the workgroup does some side by side from the first on, then
// those `row_step` further.
fn rows_of(tile: u32) -> vec2<u32> {
    let group = tile / uniforms.column_tiles;
    let split_start = group / uniforms.phases * uniforms.tile_rows;
    return vec2(
        split_start + group % uniforms.phases * (workgroup_size / lanes),
        min(uniforms.rows, split_start + uniforms.tile_rows),
    );
}

fn tile_at(tile: u32, local: u32) -> Tile {
    let rows = rows_of(tile);
    let row = rows.x + local / lanes;
    return Tile(
        tile / uniforms.column_tiles,
        row,
        rows.y,
        row * uniforms.columns % 4u,
        tile % uniforms.column_tiles * lanes * column_packets + local % lanes,
    );
}

// gamma of a quad's columns; behind the row's end begins the next row.
fn gamma_at(shift: u32, quad: u32) -> real4 {
    if !scaled { return real4(1.0); }
    let copy = select(shift, 0u, aligned);
    return load_workspace(uniforms.weights + copy * uniforms.row_quads + min(quad, uniforms.row_quads - 1u));
}

// The row's first packet in the window. It may be before the window, where a window begins inside a row.
fn first_packet_of(row: u32) -> u32 {
    return row * uniforms.columns / packet_elements - uniforms.window / packet_elements;
}

// A packet of a row, or what stands in for one that is behind the window.
fn packet_in_window(first: u32, packet: u32) -> u32 {
    if complete { return first + packet; }
    return min(first + packet, uniforms.last_packet);
}

// Columns of a quad's elements. One before the row is above all columns.
fn columns_of(quad: u32, shift: u32) -> vec4<u32> {
    return vec4(4u * quad - shift) + vec4(0u, 1u, 2u, 3u);
}
