// Layer norm forward over rows that registers hold, four elements at a time: dst = x̂ · gamma + beta, where
// x̂ = (x − shift) · r + base, x = src + residual, mean = shift + δ, r = 1 / sqrt(variance + epsilon) and base = −δ · r.
// Sums of e = x − shift and e² are taken twice: with an element of the row as shift, and with the mean that follows. The
// second ones are exact whatever the mean is, and of equal elements 0.

#import records, inverse_deviation

// What an element's result depends on beside the element.
struct Cell {
    shift: real4,
    delta: real4,
    variance: real4,
    r: real4,
    base: real4, // x̂ of shift
    gamma: real4,
    beta: real4,
}

struct Element {
    x: real4,
}

// Four sums side by side.
struct Sums {
    e: real4,
    e2: real4,
}

// The four of one row added up.
alias Record = real2;

// Nothing is known before.
fn statistics_of(vec4_index: u32, epsilon: real) -> Cell {
    return Cell();
}

fn with_params(cell: Cell, params: Params) -> Cell {
    return Cell(cell.shift, cell.delta, cell.variance, cell.r, cell.base, params.gamma, params.beta);
}

fn begin_row(cell: Cell, first: Inputs) -> Cell {
    var begun = Cell();
    begun.shift = first.src + first.residual;
    return begun;
}

fn next_round(cell: Cell) -> Cell {
    var next = cell;
    next.shift = cell.shift + cell.delta;
    return next;
}

// A cell with what follows from its sums.
fn with_sums(cell: Cell, sums: Sums, scalars: Scalars) -> Cell {
    var known = cell;
    known.delta = sums.e * scalars.inverse_count;
    // Below 0 by rounding alone. Drivers make `max` with 0, and `select`, of a NaN 0.
    known.variance = nan_unless_finite(abs(sums.e2 * scalars.inverse_count - known.delta * known.delta));
    known.r = inverse_deviation(known.variance, scalars.epsilon);
    known.base = -known.delta * known.r;
    return known;
}

// (count, shift, δ, M2), as `finish` takes them.
fn record_of_row(cell: Cell, count: real) -> real4 {
    return real4(count, cell.shift.x, cell.delta.x, cell.variance.x * count);
}

// What is known of a row, as tensors.
fn store_row(row: u32, cell: Cell) {
    store_one_mean(row, cell.shift.x + cell.delta.x);
    store_one_variance(row, cell.variance.x);
}

fn element_of(inputs: Inputs, cell: Cell) -> Element {
    return Element(inputs.src + inputs.residual);
}

fn result(element: Element, cell: Cell) -> Outputs {
    return Outputs(((element.x - cell.shift) * cell.r + cell.base) * cell.gamma + cell.beta, element.x);
}

// An element's terms, those that are in the row.
fn terms(element: Element, cell: Cell, inside: vec4<bool>) -> Sums {
    let e = select(real4(), element.x - cell.shift, inside);
    return Sums(e, e * e);
}

fn merge(a: Sums, b: Sums) -> Sums {
    return Sums(a.e + b.e, a.e2 + b.e2);
}

fn across(sums: Sums) -> Record {
    return real2((sums.e.x + sums.e.y) + (sums.e.z + sums.e.w), (sums.e2.x + sums.e2.y) + (sums.e2.z + sums.e2.w));
}

fn words_of_record(record: Record) -> real4 {
    return real4(record, real2());
}

fn record_of(sums: Sums, i: u32) -> Record {
    return real2(sums.e[i], sums.e2[i]);
}

fn sums_of(words: Words) -> Sums {
    return Sums(words.x, words.y);
}
