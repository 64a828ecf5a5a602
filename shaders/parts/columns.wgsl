// Shared by columns_walk and columns_fused, for norms over an axis that is not the last one. src is
// batches of `rows` rows of `columns` elements. Statistics belong to a column of a batch; gamma and beta belong to a
// row, which all batches share, or with parameters of samples each batch has its own.
//
// A dispatch does the columns from `first_column` to `end_column` of some batches from `first_batch` on. They are cut
// into column tiles of `threads_per_row` · `column_vectors` vectors, `column_tiles` for each batch, whose numbers go
// from `first_column_tile` to `end_column_tile`. A workgroup does a tile of rows of `walked_tiles` column tiles, one
// after another, or of those among them that the dispatch does. `walks_of_a_row` workgroups do one tile of rows of a
// batch, and the next ones the batch's next tile, of which there are `row_tiles`. So they read memory in its order.

#import records, vectors, params, copied_params
#import columns_aligned if aligned, columns_misaligned if not aligned

const same_columns: bool = true; // an invocation has the same ones in every row
const paired_columns: bool = aligned && paired_records;

// The number of a workgroup's tile of rows.
fn row_tile_of(index: u32) -> u32 {
    return uniforms.first_row_tile + index / uniforms.walks_of_a_row % uniforms.row_tiles;
}

// The first row of a tile of rows, and the end of its rows.
fn rows_of(row_tile: u32) -> vec2<u32> {
    let start = row_tile * uniforms.tile_rows;
    return vec2(start, min(start + uniforms.tile_rows, uniforms.rows));
}

// The first of a workgroup's column tiles, and their end, which is not above the first where there are none.
fn column_tiles_of(index: u32) -> vec2<u32> {
    let of_batches = index / (uniforms.walks_of_a_row * uniforms.row_tiles) * uniforms.walks_of_a_row;
    let walk = uniforms.first_column_tile / uniforms.walked_tiles + of_batches + index % uniforms.walks_of_a_row;
    let first = walk * uniforms.walked_tiles;
    return vec2(max(first, uniforms.first_column_tile), min(first + uniforms.walked_tiles, uniforms.end_column_tile));
}

fn batch_of(column_tile: u32) -> u32 {
    return uniforms.first_batch + (column_tile - uniforms.first_column_tile) / uniforms.column_tiles;
}

// The first column that an invocation has, which may be past the end.
fn first_column_of(column_tile: u32, local: u32) -> u32 {
    let tile = (column_tile - uniforms.first_column_tile) % uniforms.column_tiles;
    let vector = tile * column_vectors * threads_per_row + local % threads_per_row;
    return uniforms.first_column + vector_elements * vector;
}

// The first column of the p-th vector from an invocation's first on, which may be past the end.
fn own_column(first: u32, p: u32) -> u32 {
    return first + p * threads_per_row * vector_elements;
}

// The same column; past the end, the last that there is.
fn column_of(first: u32, p: u32) -> u32 {
    return min(own_column(first, p), uniforms.end_column - least_columns);
}

// Which of four columns, from the k-th of the p-th vector on, the dispatch does.
fn inside_tile(first: u32, p: u32, k: u32) -> vec4<bool> {
    let column = own_column(first, p) + 4u * k;
    if aligned { return vec4(column < uniforms.end_column); }
    return vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4(uniforms.end_column);
}

// A row's first element, relative to the window. Where the window begins inside a row, it may be before the window.
fn start_of_row(batch: u32, row: u32) -> u32 {
    return (batch * uniforms.rows + row) * uniforms.columns - uniforms.window;
}

// The records of four columns in a region of the workspace.
fn records_of_columns(region: u32, batch: u32, column: u32) -> Words {
    let own = min(vec4(column) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.end_column - 1u));
    return load_records(vec4(region + batch * uniforms.columns) + own);
}

// The index of a row's parameters.
fn param_of(batch: u32, row: u32) -> u32 {
    if of_samples { return batch * uniforms.rows + row; }
    return row;
}

// The parameters of a row, for four of its elements.
fn params_of_row(param: u32) -> Params {
    if !has_params { return neutral_params(); }
    return splat_params(given_params(param / 4u), param % 4u);
}
