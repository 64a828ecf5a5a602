// For columns_walk where statistics belong to rows: a row's record, workspace[stats + row], has its statistics, and where
// one partial sum is all of the row's, the means of its sums. An invocation knows the parameters of its columns, unless
// rows are read `in_order`: then it has other columns in each row.

#import body, columns_of_rows, records

alias KnownOfColumns = Params;
alias KnownOfRow = Coefficients;

fn known_of_columns(batch: u32, column: u32) -> KnownOfColumns {
    if in_order { return Params(); }
    return params_of_columns(batch, column);
}

fn known_of_row(batch: u32, row: u32) -> KnownOfRow {
    let number = number_of_row(batch, row);
    let record = row_before_sums(number);
    if reduced { return row_coefficients(record); }
    if !has_means { return row_coefficients_with_sums(record); }
    return combine(row_coefficients(record), splat(load_workspace(uniforms.means + number)));
}

// Columns have no statistics.
fn leave_known_of_columns(batch: u32, column: u32, own: KnownOfColumns) {}

// The coefficients of four elements of a row.
fn coefficients_at(columns: KnownOfColumns, row: KnownOfRow, batch: u32, row_start: u32, column: u32) -> Coefficients {
    if in_order { return with_params(row, params_at(batch, (row_start + column) / 4u * 4u - row_start)); }
    return with_params(row, columns);
}

fn accumulate_of_column(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    return accumulate(block, element, coefficients, inside);
}

// Gamma varies along a row.
fn terms_of_row(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return weigh(terms(element, coefficients, inside), coefficients);
}

// The sums of columns are parameters' gradients.
fn with_sums_of_columns(columns: KnownOfColumns, sums: Accumulator) -> KnownOfColumns {
    return columns;
}
