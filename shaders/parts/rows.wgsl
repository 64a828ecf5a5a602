// What the kernels over rows (layer norm) share. A row is `columns` elements with statistics of its own;
// gamma and the parameters' gradients lie along it. `lanes` invocations stand side by side in a row and
// hold `column_packets` packets of its columns each; the workgroup's other invocations do other rows. Both are
// constants of the text, `lanes` is a power of two: a compiler keeps arrays in registers if their length is
// that of the loops over them.
// In the fused kernels all rows that an invocation walks begin at the same place in a quad, `shift` elements behind the quad's start, so
// that it keeps to the same columns and holds their gamma. Such rows are `row_step` apart; a workgroup takes one of
// `shifts` of them. A quad q of a row holds columns 4q − shift to 4q − shift + 3. `aligned` says that every row
// begins at a quad. Packets of two quads are for rows that begin at packets.

// A group's first row, and the end of its rows: the workgroup does some side by side from the first on, then
// those `row_step` further.
fn rows_of(group: u32) -> vec2<u32> {
    let split_start = group / uniforms.shifts * uniforms.tile_rows;
    return vec2(
        split_start + group % uniforms.shifts * (workgroup_size / lanes),
        min(uniforms.rows, split_start + uniforms.tile_rows),
    );
}

// Where a row begins in a quad.
fn shift_of(row: u32) -> u32 {
    return row * uniforms.columns % 4u;
}

// The row's first packet in the window. It may be before the window, where a window begins inside a row.
fn first_packet_of(row: u32) -> u32 {
    return row * uniforms.columns / packet_elements - uniforms.window / packet_elements;
}

// Columns of a quad's elements. One before the row is above all columns.
fn columns_of(quad: u32, shift: u32) -> vec4<u32> {
    return vec4(4u * quad - shift) + vec4(0u, 1u, 2u, 3u);
}
