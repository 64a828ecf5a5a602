// The record of a partial sum of a row, of whose `partials_per_row` some groups of column tiles have as many as
// `threads_per_row` / `threads_per_partial` each.
fn row_partial(local: u32, group: u32, number: u32) -> u32 {
    let partial = (group * threads_per_row + local % threads_per_row) / threads_per_partial;
    return uniforms.row_partials + number * uniforms.partials_per_row + partial;
}
