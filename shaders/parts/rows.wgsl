// Shared by the row kernels (layer and RMS norm). A row is `columns` elements with statistics of its own; gamma and the
// parameters' gradients lie along it. `threads_per_row` neighbouring invocations, a power of two, share a row and hold
// `column_vectors` vectors of its columns each; the workgroup's other invocations do other rows. Both are constants of
// the text: a compiler keeps an array in registers if it is as long as the loops over it.
//
// `misalignment` is the number of elements from the start of a vec4 to the start of a row in it: vec4 q of a row holds
// columns 4q − misalignment to 4q − misalignment + 3. `aligned` says that it is 0 for every row. All rows that an
// invocation of the fused kernels walks have the same misalignment, so that it keeps to the same columns and holds
// their gamma. Such rows are `row_step` apart; `misalignments` workgroups share the rows of a tile, so that each keeps
// to its own misalignment. Vectors of two vec4s are for rows that begin at such vectors.

#import vectors

// The first row of a workgroup, and the end of its rows. It does some neighbouring rows from the first on, then those
// `row_step` further on. Where each sample has parameters of its own, its `param_rows` rows have `param_tiles` tiles.
fn rows_of(row_tile: u32) -> vec2<u32> {
    var tile = row_tile / uniforms.misalignments;
    var first = 0u;
    var end = uniforms.rows;
    if of_samples {
        first = tile / uniforms.param_tiles * uniforms.param_rows;
        end = first + uniforms.param_rows;
        tile %= uniforms.param_tiles;
    }
    let start = first + tile * uniforms.tile_rows;
    let own = start + row_tile % uniforms.misalignments * (workgroup_size / threads_per_row);
    return vec2(own, min(end, start + uniforms.tile_rows));
}

// The first of a row's elements of a parameter.
fn first_param_of(row: u32) -> u32 {
    if of_samples { return row / uniforms.param_rows * uniforms.columns; }
    return 0u;
}

// The number of elements before a row in its first vec4.
fn misalignment_of(row: u32) -> u32 {
    return row * uniforms.columns % 4u;
}

// The row's first vector, relative to the window. Where the window begins inside a row, it may be before the window.
fn first_vector_of(row: u32) -> u32 {
    return row * uniforms.columns / vector_elements - uniforms.window / vector_elements;
}

// The columns of a vec4's elements. That of an element before the row wraps, and is above all columns.
fn columns_of(vec4_index: u32, misalignment: u32) -> vec4<u32> {
    return vec4(4u * vec4_index - misalignment) + vec4(0u, 1u, 2u, 3u);
}
