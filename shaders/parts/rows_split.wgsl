// Shared by rows_reduce and rows_apply, which do the rows that rows_fused cannot: those too long for registers, or all
// rows on an adapter that binds too few buffers. A tile is some rows by `threads_per_row` · `column_vectors` vectors of
// columns.

#import rows, params, copied_params

const same_columns: bool = true; // an invocation has the same ones in every row
const paired_columns: bool = paired_records && (aligned || !of_samples);

struct Tile {
    row: u32, // the invocation's first row
    end: u32, // one after its last row
    vector: u32, // its first vector of a row
}

fn tile_at(tile: u32, local: u32) -> Tile {
    let rows = rows_of(tile / uniforms.column_tiles);
    return Tile(
        rows.x + local / threads_per_row,
        rows.y,
        tile % uniforms.column_tiles * threads_per_row * column_vectors + local % threads_per_row,
    );
}

// The parameters of four columns, from element `first` on; past the row's end, those of its last vec4.
fn params_vec4(first: u32, vec4_index: u32) -> Params {
    let last = (first + uniforms.columns - 1u) / 4u;
    let own = given_params(min(first / 4u + vec4_index, last));
    if aligned || !of_samples { return own; }
    return realigned_params(own, given_params(min(first / 4u + vec4_index + 1u, last)), first % 4u);
}

// A vector of a row; past the window, the window's last vector stands in.
fn vector_in_window(first: u32, vector: u32) -> u32 {
    if complete { return first + vector; }
    return min(first + vector, uniforms.last_vector);
}

