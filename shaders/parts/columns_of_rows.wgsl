// For columns_walk and in_registers where statistics belong to rows, and parameters to columns (layer and RMS norm). All
// rows share the parameters, or with parameters of samples those of a batch do.

#import batches, params, copied_params

// The parameters of four columns; past the row's end, where a buffer may hold anything, 0, or if rows are aligned, those
// of the last vec4.
fn params_of_columns(batch: u32, column: u32) -> Params {
    let own = params_at(batch, column);
    if aligned { return own; }
    return select_params(Params(), own, vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4(uniforms.columns));
}

// The parameters of four columns, of which those before the row wrap; past the row's end, those of its last vec4.
fn params_at(batch: u32, column: u32) -> Params {
    if !has_params { return neutral_params(); }
    var first = 0u;
    if of_samples { first = batch * uniforms.columns; }
    let last = (first + uniforms.columns - 1u) / 4u;
    if aligned || !(of_samples || in_order) { return given_params(min((first + column) / 4u, last)); }
    // The position of the first, counted from the vec4 before the buffer.
    let start = first + column + 4u;
    let before = given_params(min(max(start / 4u, 1u) - 1u, last));
    return realigned_params(before, given_params(min(start / 4u, last)), start % 4u);
}

// The number of a row among those with statistics of their own.
fn number_of_row(batch: u32, row: u32) -> u32 {
    return batch * uniforms.rows + row;
}

// Which of an invocation's columns are in the row, of whose start the position in a vec4 is enough. Unless sums of
// columns are taken, rows past the last may count: nobody uses their sums.
fn inside_row(row_start: u32, first: u32, p: u32, k: u32, end_column: u32) -> vec4<bool> {
    if complete && (threads_per_row == workgroup_size || !summed) { return vec4(true); }
    if in_order { return inside_columns(first - row_start % 4u, p, end_column); }
    return inside_columns(first, p, end_column);
}
