// Shared by columns_reduce, columns_apply and columns_fused, for norms over an axis that is not the last one. src is `batches` of
// `rows` rows. Statistics belong to a column of a batch; gamma and beta belong to a row, which all batches share, or
// with parameters of samples each batch has its own. A tile is some rows of a batch by `threads_per_row` ·
// `column_vectors` vectors of columns. Every row begins at a vector.

#import records, vectors, params, given_params

const same_columns: bool = true; // an invocation has the same ones in every row

// The batch of a tile.
fn batch_of(tile: u32) -> u32 {
    return tile / uniforms.column_tiles / uniforms.row_tiles;
}

// A tile's number among those along the rows of a batch.
fn row_tile_of(tile: u32) -> u32 {
    return tile / uniforms.column_tiles % uniforms.row_tiles;
}

// The first row of a tile, and the end of its rows.
fn rows_of(tile: u32) -> vec2<u32> {
    let start = row_tile_of(tile) * uniforms.tile_rows;
    return vec2(start, min(start + uniforms.tile_rows, uniforms.rows));
}

// The p-th vector of a row that an invocation has, which may be past the row's end.
fn own_vector(tile: u32, local: u32, p: u32) -> u32 {
    return (tile % uniforms.column_tiles * column_vectors + p) * threads_per_row + local % threads_per_row;
}

// The same vector; past the row's end, its last one.
fn vector_in_row(tile: u32, local: u32, p: u32) -> u32 {
    return min(own_vector(tile, local, p), uniforms.width_vectors - 1u);
}

// The records of the four columns of a vec4 in a region of the workspace.
fn records_of_columns(region: u32, batch: u32, vec4_index: u32) -> Words {
    let first = region + 4u * (batch * uniforms.width_vectors * vector_vec4s + vec4_index);
    return load_records(vec4(first) + vec4(0u, 1u, 2u, 3u));
}

// A row's first vector, relative to the window. Where the window begins inside a row, it may be before the window.
fn first_vector_of(batch: u32, row: u32) -> u32 {
    return (batch * uniforms.rows + row) * uniforms.width_vectors - uniforms.window / vector_elements;
}

// The index of a row's gamma and beta.
fn param_of(batch: u32, row: u32) -> u32 {
    if of_samples { return batch * uniforms.rows + row; }
    return row;
}

// gamma and beta of a row, for four of its elements.
fn params_of_row(param: u32) -> Params {
    if !(scaled || offset) { return Params(real4(1.0), real4(), real4(1.0)); }
    return splat_params(given_params(param / 4u), param % 4u);
}
