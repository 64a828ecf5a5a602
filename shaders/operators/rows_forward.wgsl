// Layer norm and RMS norm forward where the elements of a row, or of a column, are at hand for each of its sums, four at
// a time: dst = gate · (x̂ · gamma + beta), where x̂ = (x − shift) · r + base, x = src + residual, mean = shift + δ,
// r = 1 / sqrt(variance + epsilon) and base = −δ · r. With `residual_after`, x = src, and the residual is added to dst.
// Sums of e = x − shift and e² are taken twice: with an element of the row as the shift, then with the mean that
// follows. The second sums are exact whatever the mean is, and 0 for equal elements.
// Where elements are not `centered`, shift and δ are 0, the variance is the mean of squares, and Σ e² is taken once.

#import records, layer_output, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    shift: real4,
    delta: real4,
    variance: real4,
    r: real4,
    base: real4, // x̂ of shift
    params: Params,
}

// Reads records (0, 0, r, 0); rows that are centered have none.
fn coefficients_of(words: Words) -> Coefficients {
    var known = Coefficients();
    known.r = words.z;
    known.params = neutral_params();
    return known;
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    return real4(0.0, 0.0, coefficients.r[i], 0.0);
}

// Adds the last two words of a row's record to its coefficients.
fn combine(coefficients: Coefficients, words: Words) -> Coefficients {
    var known = coefficients;
    known.r = words.x;
    return known;
}

fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    return Words(real4(), real4(), with_sums(Coefficients(), sums, scalars).r, real4());
}

fn begin_row(coefficients: Coefficients, first: Inputs) -> Coefficients {
    var begun = coefficients;
    if centered { begun.shift = element_of(first, coefficients).x; }
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
    known.variance = sums.e2 * scalars.inverse_count;
    if centered {
        known.delta = sum_e(sums) * scalars.inverse_count;
        // Only rounding makes this negative. Drivers turn NaN into 0 in `max` with 0, and in `select`.
        known.variance = abs(known.variance - known.delta * known.delta);
    }
    known.variance = nan_unless_finite(known.variance);
    known.r = inverse_deviation(known.variance, scalars.epsilon);
    known.base = -known.delta * known.r;
    return known;
}

// (count, shift, δ, M2), or (0, Σ x², 0, 0), as `finish` reads them.
fn record_of_row(coefficients: Coefficients, sums: Accumulator, count: real) -> real4 {
    let m2 = coefficients.variance.x * count;
    if !centered { return real4(0.0, m2, 0.0, 0.0); }
    return real4(count, coefficients.shift.x, coefficients.delta.x, m2);
}

// Writes the statistics of a row to tensors.
fn store_row(row: u32, coefficients: Coefficients, i: u32) {
    if !centered {
        store_one_mean_square(row, coefficients.variance[i]);
        return;
    }
    store_one_mean(row, coefficients.shift[i] + coefficients.delta[i]);
    store_one_variance(row, coefficients.variance[i]);
}

// Writes those of four columns.
fn store_statistics(vec4_index: u32, coefficients: Coefficients) {
    store_statistics_of(vec4_index, coefficients, vec2(0u, 4u));
}

fn store_statistics_of(vec4_index: u32, coefficients: Coefficients, lanes: vec2<u32>) {
    if !centered {
        store_lanes_mean_square(vec4_index, coefficients.variance, lanes);
        return;
    }
    store_lanes_mean(vec4_index, coefficients.shift + coefficients.delta, lanes);
    store_lanes_variance(vec4_index, coefficients.variance, lanes);
}

// Writes those that follow from the sums of the lanes of four rows.
fn store_results(vec4_index: u32, sums: Accumulator, lanes: vec2<u32>, scalars: Scalars) {
    store_statistics_of(vec4_index, with_sums(Coefficients(), sums, scalars), lanes);
}

fn result(element: Element, coefficients: Coefficients) -> Outputs {
    let shifted = x_hat(element, coefficients) * coefficients.params.gamma + coefficients.params.beta;
    return Outputs(activation(after_params(shifted, element, coefficients)), element.x);
}

fn x_hat(element: Element, coefficients: Coefficients) -> real4 {
    if !centered { return element.x * coefficients.r; }
    return (element.x - coefficients.shift) * coefficients.r + coefficients.base;
}

// The terms of the elements that are in the row.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    // In this order RADV needs fewer registers for rows that do not begin at vec4s.
    if !centered { return accumulator(real4(), select(real4(), element.x * element.x, inside)); }
    let e = select(real4(), element.x - coefficients.shift, inside);
    return accumulator(e, e * e);
}
