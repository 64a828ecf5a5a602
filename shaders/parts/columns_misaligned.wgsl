// The functions of the column kernels for rows that do not begin at vec4s. A vector is one vec4. An invocation's
// columns lie in two vec4s, each of which other invocations share; or rows are read `in_order`, vec4 by vec4, of which
// the first and the last may hold elements of other rows, and column c stands for the vec4 that holds it.

#import body, columns, records, vectors, realigned

// The same column as own_column's; past the end, the last that there is. Long rows have few invocations past their end:
// these load elements of other rows, or padding, which count 0.
fn column_of(first: u32, p: u32) -> u32 {
    if long_rows { return own_column(first, p); }
    return min(own_column(first, p), uniforms.end_column - 1u);
}

// The number of elements before an invocation's columns in their first vec4: all are whole vec4s apart.
fn misalignment_of(start: u32) -> u32 {
    return (start + uniforms.first_column) % 4u;
}

// A row's p-th vector from an invocation's first column on. `start` is the row's first element, relative to the window.
fn load_in_row(start: u32, first: u32, p: u32) -> VectorInputs {
    let element = start + column_of(first, p);
    var own = load_vector_inputs(min(element / 4u, uniforms.last_vector));
    if in_order { return own; }
    let next = load_vector_inputs(min(element / 4u + 1u, uniforms.last_vector));
    own[0] = realigned_inputs(own[0], next[0], misalignment_of(start));
    return own;
}

fn store_in_row(start: u32, first: u32, p: u32, outputs: VectorOutputs) {
    let column = own_column(first, p);
    let element = start + column;
    if in_order {
        let columns = vec4(element / 4u * 4u - start) + vec4(0u, 1u, 2u, 3u);
        store_some_outputs(element / 4u, outputs[0], columns < vec4(uniforms.end_column));
        return;
    }
    let turned = turned_outputs(outputs[0], misalignment_of(start));
    // Which of the four outputs each element of the first vec4 is; those before the first wrap.
    let output = vec4(0u, 1u, 2u, 3u) - vec4(misalignment_of(start));
    let count = vec4(min(4u, uniforms.end_column - column));
    store_some_outputs(element / 4u, turned, output < count);
    store_some_outputs(element / 4u + 1u, turned, output + vec4(4u) < count);
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

// Writes the statistics of four columns in registers.
fn store_statistics_at(batch: u32, column: u32, coefficients: Coefficients) {
    for (var i = 0u; i < min(4u, uniforms.end_column - column); i++) {
        store_row(batch * uniforms.columns + column + i, coefficients, i);
    }
}
