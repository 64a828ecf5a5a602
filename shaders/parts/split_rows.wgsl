// What reduce_rows and apply_rows share. They do the rows that the fused kernels cannot: too long for registers, or
// on an adapter with few bindings.
// A tile is some rows by `lanes` · `column_packets` packets of columns.

const same_columns: bool = true; // an invocation keeps to its columns in every row

struct Tile {
    row: u32, // the invocation's first
    end: u32, // behind the last
    packet: u32, // the first of the row's
}

fn tile_at(tile: u32, local: u32) -> Tile {
    let rows = rows_of(tile / uniforms.column_tiles);
    return Tile(
        rows.x + local / lanes,
        rows.y,
        tile % uniforms.column_tiles * lanes * column_packets + local % lanes,
    );
}

// gamma of four columns; behind the last ones, of those.
fn gamma_quad(quad: u32) -> real4 {
    if !scaled { return real4(1.0); }
    let inside = min(quad, (uniforms.columns - 1u) / 4u);
    if weighted { return load_workspace(uniforms.weights + inside); }
    return load_gamma(inside);
}

// A packet of a row, or what stands in for one that is behind the window.
fn packet_in_window(first: u32, packet: u32) -> u32 {
    if complete { return first + packet; }
    return min(first + packet, uniforms.last_packet);
}

// The four elements that begin `shift` elements into a quad, from this one and the next.
fn shifted(own: real4, next: real4, shift: u32) -> real4 {
    let by_odd = shift % 2u == 1u;
    let near = select(own, real4(own.yzw, next.x), by_odd);
    let far = select(next.xy, next.yz, by_odd);
    return select(near, real4(near.zw, far), shift >= 2u);
}

// Of a row's record, whose last two words are not of the cell. gamma is of the columns.
fn row_cell(record: real4) -> Cell {
    return cell_of(splat(real4(record.xy, 1.0, 0.0)));
}
