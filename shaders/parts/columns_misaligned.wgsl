// The functions of the column kernels for rows that do not begin at vec4s. A vector is one vec4. An invocation's
// columns lie in two vec4s, each of which other invocations share.

#import body, records, vectors, realigned

const least_columns: u32 = 1u; // that a vector has

fn load_in_row(start: u32, column: u32) -> VectorInputs {
    let element = start + column;
    var own = load_vector_inputs(min(element / 4u, uniforms.last_vector));
    let next = load_vector_inputs(min(element / 4u + 1u, uniforms.last_vector));
    own[0] = realigned_inputs(own[0], next[0], element % 4u);
    return own;
}

fn store_in_row(start: u32, column: u32, outputs: VectorOutputs) {
    let element = start + column;
    let turned = turned_outputs(outputs[0], element % 4u);
    // Which of the four outputs each element of the first vec4 is; those before the first wrap.
    let first = vec4(0u, 1u, 2u, 3u) - vec4(element % 4u);
    let count = vec4(min(4u, uniforms.end_column - column));
    store_some_outputs(element / 4u, turned, first < count);
    store_some_outputs(element / 4u + 1u, turned, first + vec4(4u) < count);
}

// The coefficients of four columns by given statistics; past the end, those of the last one.
fn statistics_at(batch: u32, column: u32) -> Coefficients {
    return coefficients_of(side_by_side(
        record_at(batch, column),
        record_at(batch, column + 1u),
        record_at(batch, column + 2u),
        record_at(batch, column + 3u),
    ));
}

fn record_at(batch: u32, column: u32) -> real4 {
    let index = batch * uniforms.columns + min(column, uniforms.end_column - 1u);
    return record_of_coefficients(statistics_of(index / 4u, uniforms.epsilon), index % 4u);
}

// Writes the statistics of four columns: those that follow from sums, or from a column in registers.
fn store_results_at(batch: u32, column: u32, sums: Accumulator, scalars: Scalars) {
    for (var i = 0u; i < min(4u, uniforms.end_column - column); i++) {
        store_one_result(batch * uniforms.columns + column + i, sums, i, scalars);
    }
}

fn store_statistics_at(batch: u32, column: u32, coefficients: Coefficients) {
    for (var i = 0u; i < min(4u, uniforms.end_column - column); i++) {
        store_row(batch * uniforms.columns + column + i, coefficients, i);
    }
}
