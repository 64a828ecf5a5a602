// For norms over an axis that is not the last one: statistics belong to a column of a batch; gamma and beta belong to a
// row, which all batches share, or with parameters of samples each batch has its own.

#import body, batches, records, params, copied_params

fn inside_row(row_start: u32, first: u32, p: u32, k: u32, end_column: u32) -> vec4<bool> {
    return inside_columns(first, p, end_column);
}

// The records of four columns in a region of the workspace.
fn records_of_columns(region: u32, batch: u32, column: u32) -> Words {
    let own = min(vec4(column) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.end_column - 1u));
    return load_records(vec4(region + batch * uniforms.columns) + own);
}

// The number of a row among those with parameters of their own.
fn number_of_row(batch: u32, row: u32) -> u32 {
    if of_samples { return batch * uniforms.rows + row; }
    return row;
}

// The parameters of a row, for four of its elements.
fn params_of_row(param: u32) -> Params {
    if !has_params { return neutral_params(); }
    return splat_params(given_params(param / 4u), param % 4u);
}

// The coefficients of four columns before their sums, from tensors. Rows have the parameters.
fn given_of_columns(batch: u32, column: u32) -> Coefficients {
    return statistics_at(batch, column);
}

// Writes the records of four columns.
fn leave_records(batch: u32, column: u32, coefficients: Coefficients) {
    for (var i = 0u; i < min(4u, uniforms.end_column - column); i++) {
        store_workspace(uniforms.stats + batch * uniforms.columns + column + i, record_of_coefficients(coefficients, i));
    }
}

// The coefficients of an element of a row.
fn with_params_of_row(coefficients: Coefficients, params: Params) -> Coefficients {
    return with_params(coefficients, params);
}

fn accumulate_of_column(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    return accumulate_weighed(block, element, coefficients, inside);
}

fn terms_of_row(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return terms(element, coefficients, inside);
}
