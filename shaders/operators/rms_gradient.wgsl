// The gradient of RMS norm, four elements at a time.
// diff_src = r · (gamma · diff_dst − x̂ · b), and diff_gamma = Σ diff_dst · x̂ over the rows, with x̂ = src · r.
// b is the mean of gamma · diff_dst · x̂ over the elements of a row.

#import records, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    r: real4,
    gamma: real4,
    b: real4,
}

// The values from which sums and result are computed.
struct Element {
    d: real4,
    xhat: real4,
}

// Four running sums side by side, of one channel or of four.
struct Accumulator {
    d_xhat: real4,
}

// The sums of one channel.
alias Total = real;

// Loads r = 1 / sqrt(mean_square + epsilon) of four channels from tensors, without gamma.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    return Coefficients(inverse_deviation(load_mean_square(vec4_index), epsilon), real4(1.0), real4());
}

fn with_params(coefficients: Coefficients, params: Params) -> Coefficients {
    return Coefficients(coefficients.r, params.gamma, coefficients.b);
}

// Reads records (0, r, gamma, 0).
fn coefficients_of(words: Words) -> Coefficients {
    return Coefficients(words.y, words.z, real4());
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    return real4(0.0, coefficients.r[i], coefficients.gamma[i], 0.0);
}

// Adds what follows from the means of the sums.
fn combine(coefficients: Coefficients, means: Words) -> Coefficients {
    return Coefficients(coefficients.r, coefficients.gamma, coefficients.gamma * means.y);
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    let xhat = inputs.src * coefficients.r;
    return Element(activation_gradient(xhat * coefficients.gamma, inputs.diff_dst), xhat);
}

fn result(element: Element, coefficients: Coefficients) -> Outputs {
    return Outputs(coefficients.r * (coefficients.gamma * element.d - element.xhat * coefficients.b));
}

// The terms of the elements that are inside.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return Accumulator(select(real4(), element.d * element.xhat, inside));
}

fn merge(a: Accumulator, b: Accumulator) -> Accumulator {
    return Accumulator(a.d_xhat + b.d_xhat);
}

// Weights the sums with gamma where it varies between the elements of a row.
fn weigh(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    return Accumulator(sums.d_xhat * coefficients.gamma);
}

fn horizontal_sum(sums: Accumulator) -> Total {
    return (sums.d_xhat.x + sums.d_xhat.y) + (sums.d_xhat.z + sums.d_xhat.w);
}

// Derives the records that `combine` reads, side by side: the means of the sums.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    return Words(real4(), sums.d_xhat * scalars.inverse_count, real4(), real4());
}

fn words_of_total(record: Total) -> real4 {
    return real4(0.0, record, 0.0, 0.0);
}

fn total_of(sums: Accumulator, i: u32) -> Total {
    return sums.d_xhat[i];
}

fn accumulator_of(words: Words) -> Accumulator {
    return Accumulator(words.y);
}

// Writes the parameters' gradients of the first `count` of four columns.
fn store_results(vec4_index: u32, sums: Accumulator, count: u32, scalars: Scalars) {
    store_first_diff_gamma(vec4_index, sums.d_xhat, count);
}
