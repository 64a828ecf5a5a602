// RMS norm forward, four elements at a time: dst = gate · (x · r · gamma + beta), where
// x = src + residual and r = 1 / sqrt(mean(x²) + epsilon). With `residual_after`, x = src, and the residual is added to dst.

#import records, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    mean_square: real4,
    r: real4,
    gamma: real4,
    beta: real4,
    gate: real4,
}

struct Element {
    x: real4,
    after: real4, // added to the layer's output
}

// Four running sums of x² side by side.
struct Accumulator {
    x2: real4,
}

// The sum of one row.
alias Total = real;

// Nothing is known before the sums.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    return Coefficients(real4(), real4(), real4(1.0), real4(), real4());
}

fn with_params(coefficients: Coefficients, params: Params) -> Coefficients {
    return Coefficients(coefficients.mean_square, coefficients.r, params.gamma, params.beta, params.gate);
}

// Reads records (0, 0, r, 0).
fn coefficients_of(words: Words) -> Coefficients {
    return Coefficients(real4(), words.z, real4(1.0), real4(), real4());
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    return real4(0.0, 0.0, coefficients.r[i], 0.0);
}

// Adds the last two words of a row's record to its coefficients.
fn combine(coefficients: Coefficients, words: Words) -> Coefficients {
    return Coefficients(coefficients.mean_square, words.x, coefficients.gamma, coefficients.beta, coefficients.gate);
}

// Adds what follows from the sums to the coefficients.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    let mean_square = nan_unless_finite(sums.x2 * scalars.inverse_count);
    let r = inverse_deviation(mean_square, scalars.epsilon);
    return Coefficients(mean_square, r, coefficients.gamma, coefficients.beta, coefficients.gate);
}

// Derives the records of four rows, side by side.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    let coefficients = with_sums(statistics_of(vec4_index, scalars.epsilon), sums, scalars);
    return Words(real4(), real4(), coefficients.r, real4());
}

// (0, Σ x², 0, 0), as `finish` reads it.
fn record_of_row(coefficients: Coefficients, count: real) -> real4 {
    return real4(0.0, coefficients.mean_square.x * count, 0.0, 0.0);
}

// Writes the statistics of a row to tensors.
fn store_row(row: u32, coefficients: Coefficients, i: u32) {
    store_one_mean_square(row, coefficients.mean_square[i]);
}

// Writes those of four columns.
fn store_statistics(vec4_index: u32, coefficients: Coefficients) {
    store_first_mean_square(vec4_index, coefficients.mean_square, 4u);
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    if residual_after { return Element(inputs.src, inputs.residual); }
    return Element(inputs.src + inputs.residual, real4());
}

fn result(element: Element, coefficients: Coefficients) -> Outputs {
    var y = element.x * coefficients.r * coefficients.gamma + coefficients.beta;
    if gated { y *= coefficients.gate; }
    if residual_after { y += element.after; }
    return Outputs(activation(y), element.x);
}

// The terms of the elements that are in the row.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return Accumulator(select(real4(), element.x * element.x, inside));
}

fn merge(a: Accumulator, b: Accumulator) -> Accumulator {
    return Accumulator(a.x2 + b.x2);
}

fn horizontal_sum(sums: Accumulator) -> Total {
    return (sums.x2.x + sums.x2.y) + (sums.x2.z + sums.x2.w);
}

fn words_of_total(record: Total) -> real4 {
    return real4(0.0, record, 0.0, 0.0);
}

fn total_of(sums: Accumulator, i: u32) -> Total {
    return sums.x2[i];
}

fn accumulator_of(words: Words) -> Accumulator {
    return Accumulator(words.y);
}

// Writes the mean of squares of the first `count` of four rows.
fn store_results(vec4_index: u32, sums: Accumulator, count: u32, scalars: Scalars) {
    store_first_mean_square(vec4_index, nan_unless_finite(sums.x2 * scalars.inverse_count), count);
}

fn store_one_result(index: u32, sums: Accumulator, i: u32, scalars: Scalars) {
    store_one_mean_square(index, nan_unless_finite(sums.x2 * scalars.inverse_count)[i]);
}
