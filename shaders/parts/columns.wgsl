// Shared by columns_walk and in_registers: which rows and columns an invocation has. src is batches of `rows` rows of
// `columns` elements.
//
// A dispatch does the columns from `first_column` to `end_column` of some batches from `first_batch` on. They are cut
// into column tiles of `threads_per_row` · `column_vectors` vectors, `column_tiles` for each batch, whose numbers go
// from `first_column_tile` to `end_column_tile`. A workgroup does a tile of rows of `walked_tiles` column tiles, one
// after another, or of those among them that the dispatch does. `walks_of_a_row` workgroups do one tile of rows of a
// batch, and the next ones the batch's next tile, of which there are `row_tiles`. So they read memory in its order.

#import body, vectors

alias ColumnSums = array<array<Accumulator, vector_vec4s>, column_vectors>;

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
    let of_batches = index / uniforms.walks_of_a_row / uniforms.row_tiles * uniforms.walks_of_a_row;
    let walk = of_batches + index % uniforms.walks_of_a_row;
    if one_tile {
        let only = uniforms.first_column_tile + walk;
        return vec2(only, min(only + 1u, uniforms.end_column_tile));
    }
    let first = (uniforms.first_column_tile / uniforms.walked_tiles + walk) * uniforms.walked_tiles;
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

// The first vector of a row, counted through all batches, or if rows are not aligned, its first element, relative to the
// window. Where the window begins inside a row, it may be before the window.
fn start_of(row: u32) -> u32 {
    if aligned { return row * (uniforms.columns / vector_elements) - uniforms.window / vector_elements; }
    return row * uniforms.columns - uniforms.window;
}

// Whether an invocation's vector, from a column on, is one of the row's, of whose start the position in a vec4 is enough.
fn is_in_row(row_start: u32, column: u32) -> bool {
    if of_rows && complete { return true; }
    if in_order { return column < uniforms.end_column + row_start % 4u; }
    return column < uniforms.end_column;
}
