// What the kernels over rows (layer norm) share. A row is `columns` elements with statistics of its own;
// gamma and the parameters' gradients lie along it. `threads_per_row` invocations stand side by side in a row and
// hold `column_vectors` vectors of its columns each; the workgroup's other invocations do other rows. Both are
// constants of the text, `threads_per_row` is a power of two: a compiler keeps arrays in registers if their length is
// that of the loops over them.
// In the fused kernels all rows that an invocation walks begin at the same place in a vec4, `misalignment` elements behind the vec4's start, so
// that it keeps to the same columns and holds their gamma. Such rows are `row_step` apart; a workgroup takes one of
// `misalignments` of them. A vec4 q of a row holds columns 4q − misalignment to 4q − misalignment + 3. `aligned` says that every row
// begins at a vec4. Vectors of two vec4s are for rows that begin at vectors.
//
// Needs: vectors.

// A group's first row, and the end of its rows: the workgroup does some side by side from the first on, then
// those `row_step` further.
fn rows_of(group: u32) -> vec2<u32> {
    let split_start = group / uniforms.misalignments * uniforms.tile_rows;
    return vec2(
        split_start + group % uniforms.misalignments * (workgroup_size / threads_per_row),
        min(uniforms.rows, split_start + uniforms.tile_rows),
    );
}

// Where a row begins in a vec4.
fn misalignment_of(row: u32) -> u32 {
    return row * uniforms.columns % 4u;
}

// The row's first vector in the window. It may be before the window, where a window begins inside a row.
fn first_vector_of(row: u32) -> u32 {
    return row * uniforms.columns / vector_elements - uniforms.window / vector_elements;
}

// Columns of a vec4's elements. One before the row is above all columns.
fn columns_of(vec4_index: u32, misalignment: u32) -> vec4<u32> {
    return vec4(4u * vec4_index - misalignment) + vec4(0u, 1u, 2u, 3u);
}
