// For columns_walk where statistics belong to rows, and parameters to columns (layer and RMS norm). All rows share the
// parameters, or with parameters of samples those of a batch do. A row's record, workspace[stats + row], has its
// statistics, and where one partial sum is all of the row's, the means of its sums.

#import body, batches, records, params, copied_params

alias KnownOfColumns = Params;
alias KnownOfRow = Coefficients;

const adds_columns: bool = summed;
const adds_rows: bool = reduced;
const in_order: bool = applied && !aligned;
const long_rows: bool = true;

// Where rows are read `in_order`, an invocation has other columns in each row.
fn known_of_columns(batch: u32, column: u32) -> KnownOfColumns {
    if in_order { return Params(); }
    let own = params_at(batch, column);
    if aligned { return own; }
    // Past the row's end, where a buffer may hold anything, 0.
    return select_params(Params(), own, vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4(uniforms.columns));
}

fn known_of_row(batch: u32, row: u32) -> KnownOfRow {
    let number = number_of_row(batch, row);
    let record = load_workspace(uniforms.stats + number);
    if reduced { return row_coefficients(record); }
    if !has_means { return row_coefficients_with_sums(record); }
    return combine(row_coefficients(record), splat(load_workspace(uniforms.means + number)));
}

// The coefficients of four elements of a row.
fn coefficients_at(columns: KnownOfColumns, row: KnownOfRow, batch: u32, row_start: u32, column: u32) -> Coefficients {
    if in_order { return with_params(row, params_at(batch, (row_start + column) / 4u * 4u - row_start)); }
    return with_params(row, columns);
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

fn inside_row(row_start: u32, first: u32, p: u32, k: u32, end_column: u32) -> vec4<bool> {
    if complete && threads_per_row == workgroup_size { return vec4(true); }
    return inside_columns(first, p, end_column);
}

// Whether an invocation's vector, from a column on, is one of the row's.
fn is_in_row(row_start: u32, column: u32) -> bool {
    if complete { return true; }
    if in_order { return column < uniforms.columns + row_start % 4u; }
    return column < uniforms.columns;
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
