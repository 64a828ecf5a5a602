// Batches of rows of columns, one after another, whose vectors are all in the tensor.

#import columns, vectors

// A row's first element, relative to the window. Where the window begins inside a row, it may be before the window.
fn start_of_row(batch: u32, row: u32) -> u32 {
    return (batch * uniforms.rows + row) * uniforms.columns - uniforms.window;
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
