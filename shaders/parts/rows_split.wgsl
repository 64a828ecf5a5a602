// What rows_reduce and rows_apply share. They do the rows that rows_fused cannot: those too long for registers, or all
// on an adapter that binds too few buffers. A tile is some rows by `threads_per_row` · `column_vectors` vectors of columns.
//
// Needs: rows, records, body.

const same_columns: bool = true; // an invocation keeps to its columns in every row

struct Tile {
    row: u32, // the invocation's first
    end: u32, // behind the last
    vector: u32, // the first of the row's
}

fn tile_at(tile: u32, local: u32) -> Tile {
    let rows = rows_of(tile / uniforms.column_tiles);
    return Tile(
        rows.x + local / threads_per_row,
        rows.y,
        tile % uniforms.column_tiles * threads_per_row * column_vectors + local % threads_per_row,
    );
}

// gamma and beta of four columns; behind the last ones, of those.
fn params_vec4(vec4_index: u32) -> Params {
    let inside = min(vec4_index, (uniforms.columns - 1u) / 4u);
    var params = Params(real4(1.0), real4());
    if scaled {
        if weighted { params.gamma = load_workspace(uniforms.weights + inside); } else { params.gamma = load_gamma(inside); }
    }
    if offset {
        if weighted { params.beta = load_workspace(uniforms.offsets + inside); } else { params.beta = load_beta(inside); }
    }
    return params;
}

// A vector of a row, or what stands in for one that is behind the window.
fn vector_in_window(first: u32, vector: u32) -> u32 {
    if complete { return first + vector; }
    return min(first + vector, uniforms.last_vector);
}

// The four elements that begin `misalignment` elements into a vec4, from this one and the next.
fn realigned(own: real4, next: real4, misalignment: u32) -> real4 {
    let by_odd = misalignment % 2u == 1u;
    let near = select(own, real4(own.yzw, next.x), by_odd);
    let far = select(next.xy, next.yz, by_odd);
    return select(near, real4(near.zw, far), misalignment >= 2u);
}

// Of a row's record, whose last two words are not of the cell. gamma is of the columns.
fn row_cell(record: real4) -> Cell {
    return cell_of(splat(real4(record.xy, 1.0, 0.0)));
}
