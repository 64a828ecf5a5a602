// RMS norm forward, four elements at a time: dst = x · r · gamma, where x = src + residual and
// r = 1 / sqrt(mean(x²) + epsilon).

#import records, activation, inverse_deviation

// What an element's result depends on beside the element.
struct Coefficients {
    mean_square: real4,
    r: real4,
    gamma: real4,
}

struct Element {
    x: real4,
}

// Four sums of x² side by side.
struct Accumulator {
    x2: real4,
}

// The four of one row added up.
alias Total = real;

// Nothing is known before.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    return Coefficients(real4(), real4(), real4(1.0));
}

fn with_params(coefficients: Coefficients, params: Params) -> Coefficients {
    return Coefficients(coefficients.mean_square, coefficients.r, params.gamma);
}

// Of records (0, 0, r, 0).
fn coefficients_of(words: Words) -> Coefficients {
    return Coefficients(real4(), words.z, real4(1.0));
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    return real4(0.0, 0.0, coefficients.r[i], 0.0);
}

// Of a row, with the last two words of its record.
fn combine(coefficients: Coefficients, words: Words) -> Coefficients {
    return Coefficients(coefficients.mean_square, words.x, coefficients.gamma);
}

// Coefficients with what follows from its sums.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    let mean_square = nan_unless_finite(sums.x2 * scalars.inverse_count);
    return Coefficients(mean_square, inverse_deviation(mean_square, scalars.epsilon), coefficients.gamma);
}

// The records of four channels, side by side.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    let coefficients = with_sums(statistics_of(vec4_index, scalars.epsilon), sums, scalars);
    return Words(real4(), real4(), coefficients.r, real4());
}

// (0, Σ x², 0, 0), as `finish` takes it.
fn record_of_row(coefficients: Coefficients, count: real) -> real4 {
    return real4(0.0, coefficients.mean_square.x * count, 0.0, 0.0);
}

// What is known of a row, as tensors.
fn store_row(row: u32, coefficients: Coefficients) {
    store_one_mean_square(row, coefficients.mean_square.x);
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    return Element(inputs.src + inputs.residual);
}

fn result(element: Element, coefficients: Coefficients) -> Outputs {
    return Outputs(activation(element.x * coefficients.r * coefficients.gamma), element.x);
}

// An element's terms, those that are in the row.
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

// The mean of the squares of four rows, the first `count`.
fn store_results(vec4_index: u32, sums: Accumulator, count: u32, scalars: Scalars) {
    store_first_mean_square(vec4_index, nan_unless_finite(sums.x2 * scalars.inverse_count), count);
}
