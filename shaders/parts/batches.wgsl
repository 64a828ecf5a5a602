// Batches of rows of columns, one after another, whose vectors are all in the tensor.

#import columns, vectors

fn start_of_row(batch: u32, row: u32) -> u32 {
    return start_of(batch * uniforms.rows + row);
}

// Which of a vec4's columns, of the p-th vector from an invocation's first on, are before the end. If rows are aligned,
// the end is that of a vector.
fn inside_columns(first: u32, p: u32, end_column: u32) -> vec4<bool> {
    let column = own_column(first, p);
    if aligned { return vec4(column < end_column); }
    return vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4(end_column);
}

fn vector_in_tensor(vector: u32) -> u32 {
    return vector;
}

fn store_in_tensor(vector: u32, outputs: VectorOutputs) {
    store_vector_outputs(vector, outputs);
}

// The number of a column's partial sum among those of a tile of rows.
fn number_of(batch: u32, column: u32) -> u32 {
    return batch * uniforms.columns + column;
}

// Columns do not belong to channels.
fn store_sums_by_channel(local: u32, row_tile: u32, batch: u32, first: u32, sums: ptr<function, ColumnSums>) {}
