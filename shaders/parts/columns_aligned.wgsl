// The functions of the column kernels for rows that begin at vectors. `start` is a row's first vector, relative to the
// window.

#import body, columns, vectors

// The same column as own_column's; past the end, that of the last vector that there is.
fn column_of(first: u32, p: u32) -> u32 {
    return min(own_column(first, p), uniforms.end_column - vector_elements);
}

fn load_in_row(start: u32, first: u32, p: u32) -> VectorInputs {
    return load_vector_inputs(vector_in_tensor(start + vector_of(first, p)));
}

fn store_in_row(start: u32, first: u32, p: u32, outputs: VectorOutputs) {
    store_in_tensor(start + vector_of(first, p), outputs);
}

// The vector at column_of's column.
fn vector_of(first: u32, p: u32) -> u32 {
    let own = first / vector_elements + p * threads_per_row;
    if of_rows && complete { return own; }
    return min(own, uniforms.end_column / vector_elements - 1u);
}

// The coefficients of four columns by given statistics.
fn statistics_at(batch: u32, column: u32) -> Coefficients {
    return statistics_of((batch * uniforms.columns + column) / 4u, uniforms.epsilon);
}

// Writes the statistics of four columns in registers.
fn store_statistics_at(batch: u32, column: u32, coefficients: Coefficients) {
    store_statistics((batch * uniforms.columns + column) / 4u, coefficients);
}
