// Layer norm forward over rows in registers, four elements at a time: dst = gate · (x̂ · gamma + beta), where
// x̂ = (x − shift) · r + base, x = src + residual, mean = shift + δ, r = 1 / sqrt(variance + epsilon) and
// base = −δ · r. With `residual_after`, x = src, and the residual is added to dst. Sums of e = x − shift and e² are taken twice: with an element of the row as the shift, then with the
// mean that follows. The second sums are exact whatever the mean is, and 0 for equal elements.

#import records, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    shift: real4,
    delta: real4,
    variance: real4,
    r: real4,
    base: real4, // x̂ of shift
    gamma: real4,
    beta: real4,
    gate: real4,
}

struct Element {
    x: real4,
    after: real4, // added to the layer's output
}

// Four running sums side by side.
struct Accumulator {
    e: real4,
    e2: real4,
}

// The sums of one row.
alias Total = real2;

// Nothing is known before the sums.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    return Coefficients();
}

fn with_params(coefficients: Coefficients, params: Params) -> Coefficients {
    return Coefficients(coefficients.shift, coefficients.delta, coefficients.variance, coefficients.r, coefficients.base, params.gamma, params.beta, params.gate);
}

fn begin_row(coefficients: Coefficients, first: Inputs) -> Coefficients {
    var begun = Coefficients();
    begun.shift = element_of(first, coefficients).x;
    return begun;
}

fn next_reduction(coefficients: Coefficients) -> Coefficients {
    var next = coefficients;
    next.shift = coefficients.shift + coefficients.delta;
    return next;
}

// Adds what follows from the sums to the coefficients.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    var known = coefficients;
    known.delta = sums.e * scalars.inverse_count;
    // Only rounding makes this negative. Drivers turn NaN into 0 in `max` with 0, and in `select`.
    known.variance = nan_unless_finite(abs(sums.e2 * scalars.inverse_count - known.delta * known.delta));
    known.r = inverse_deviation(known.variance, scalars.epsilon);
    known.base = -known.delta * known.r;
    return known;
}

// (count, shift, δ, M2), as `finish` reads them.
fn record_of_row(coefficients: Coefficients, count: real) -> real4 {
    return real4(count, coefficients.shift.x, coefficients.delta.x, coefficients.variance.x * count);
}

// Writes the statistics of a row to tensors.
fn store_row(row: u32, coefficients: Coefficients, i: u32) {
    store_one_mean(row, coefficients.shift[i] + coefficients.delta[i]);
    store_one_variance(row, coefficients.variance[i]);
}

// Writes those of four columns.
fn store_statistics(vec4_index: u32, coefficients: Coefficients) {
    store_first_mean(vec4_index, coefficients.shift + coefficients.delta, 4u);
    store_first_variance(vec4_index, coefficients.variance, 4u);
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    if residual_after { return Element(inputs.src, inputs.residual); }
    return Element(inputs.src + inputs.residual, real4());
}

fn result(element: Element, coefficients: Coefficients) -> Outputs {
    let xhat = (element.x - coefficients.shift) * coefficients.r + coefficients.base;
    var y = xhat * coefficients.gamma + coefficients.beta;
    if gated { y *= coefficients.gate; }
    if residual_after { y += element.after; }
    return Outputs(activation(y), element.x);
}

// The terms of the elements that are in the row.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    let e = select(real4(), element.x - coefficients.shift, inside);
    return Accumulator(e, e * e);
}

fn merge(a: Accumulator, b: Accumulator) -> Accumulator {
    return Accumulator(a.e + b.e, a.e2 + b.e2);
}

fn horizontal_sum(sums: Accumulator) -> Total {
    return real2((sums.e.x + sums.e.y) + (sums.e.z + sums.e.w), (sums.e2.x + sums.e2.y) + (sums.e2.z + sums.e2.w));
}

fn words_of_total(record: Total) -> real4 {
    return real4(record, real2());
}

fn total_of(sums: Accumulator, i: u32) -> Total {
    return real2(sums.e[i], sums.e2[i]);
}

fn accumulator_of(words: Words) -> Accumulator {
    return Accumulator(words.x, words.y);
}
