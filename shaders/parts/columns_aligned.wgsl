// The functions of the column kernels for rows that begin at vectors. `start` is a row's first vector, relative to the
// window.

#import body, columns, records, vectors

// The same column as own_column's; past the end, that of the last vector that there is.
fn column_of(first: u32, p: u32) -> u32 {
    return min(own_column(first, p), uniforms.end_column - vector_elements);
}

// A row's p-th vector from an invocation's first column on; past the end, the last that there is.
fn load_in_row(start: u32, first: u32, p: u32) -> VectorInputs {
    var vector = own_vector(first, p);
    if !(of_rows && complete) { vector = min(vector, uniforms.end_column / vector_elements - 1u); }
    return load_vector_inputs(vector_in_tensor(start + vector));
}

fn store_in_row(start: u32, first: u32, p: u32, outputs: VectorOutputs) {
    store_in_tensor(start + own_vector(first, p), outputs);
}

fn own_vector(first: u32, p: u32) -> u32 {
    return first / vector_elements + p * threads_per_row;
}

// The coefficients of four columns by given statistics.
fn statistics_at(batch: u32, column: u32) -> Coefficients {
    return statistics_of((batch * uniforms.columns + column) / 4u, uniforms.epsilon);
}

// Writes the statistics of four columns: those that follow from sums, or from a column in registers.
fn store_results_at(batch: u32, column: u32, sums: Accumulator, scalars: Scalars) {
    store_results((batch * uniforms.columns + column) / 4u, sums, 4u, scalars);
}

fn store_statistics_at(batch: u32, column: u32, coefficients: Coefficients) {
    store_statistics((batch * uniforms.columns + column) / 4u, coefficients);
}
