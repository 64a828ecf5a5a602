// The gradient of batch norm, of group norm and of layer norm, four elements at a time. If an activation follows the
// layer, diff_dst first goes back through it.
// diff_src = r · ((gamma · diff_dst − a) − x̂ · b), diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂, with
// x̂ = (src − mean) · r. With a gate, gamma stands for gamma · gate. a and b are the means of gamma · diff_dst and gamma · diff_dst · x̂ over the elements that
// share a mean. Where elements are not `centered`, mean and a are 0 and r = 1 / sqrt(mean_square + epsilon).

#import records, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    mean: real4,
    r: real4,
    gamma: real4,
    beta: real4, // for the activation; or the gate, which no activation follows
    a: real4,
    b: real4,
}

// The values from which sums and result are computed.
struct Element {
    d: real4,
    xhat: real4,
}

// Four running sums side by side, of one channel or of four.
struct Accumulator {
    d: real4,
    d_xhat: real4,
}

// The sums of one channel.
alias Total = real2;

// Loads mean and r = 1 / sqrt(variance + epsilon) of four channels from tensors, without gamma.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    if !centered {
        let r = inverse_deviation(load_mean_square(vec4_index), epsilon);
        return Coefficients(real4(), r, real4(1.0), real4(), real4(), real4());
    }
    let r = inverse_deviation(load_variance(vec4_index), epsilon);
    return Coefficients(load_mean(vec4_index), r, real4(1.0), real4(), real4(), real4());
}

fn with_params(coefficients: Coefficients, params: Params) -> Coefficients {
    if gated { return Coefficients(coefficients.mean, coefficients.r, params.gamma, params.gate, coefficients.a, coefficients.b); }
    return Coefficients(coefficients.mean, coefficients.r, params.gamma, params.beta, coefficients.a, coefficients.b);
}

// Reads records (mean, r, gamma, beta).
fn coefficients_of(words: Words) -> Coefficients {
    return Coefficients(words.x, words.y, words.z, words.w, real4(), real4());
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    return real4(coefficients.mean[i], coefficients.r[i], coefficients.gamma[i], coefficients.beta[i]);
}

// Adds what follows from the means of the sums. Those of a group's channels are already weighted with gamma.
fn combine(coefficients: Coefficients, means: Words) -> Coefficients {
    if of_groups { return Coefficients(coefficients.mean, coefficients.r, coefficients.gamma, coefficients.beta, means.z, means.w); }
    let scale = coefficients.gamma;
    return Coefficients(coefficients.mean, coefficients.r, coefficients.gamma, coefficients.beta, scale * means.x, scale * means.y);
}

fn select_coefficients(f: Coefficients, t: Coefficients, condition: vec4<bool>) -> Coefficients {
    return Coefficients(
        select(f.mean, t.mean, condition),
        select(f.r, t.r, condition),
        select(f.gamma, t.gamma, condition),
        select(f.beta, t.beta, condition),
        select(f.a, t.a, condition),
        select(f.b, t.b, condition),
    );
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    let xhat = (inputs.src - coefficients.mean) * coefficients.r;
    return Element(activation_gradient(xhat * coefficients.gamma + coefficients.beta, inputs.diff_dst), xhat);
}

// The residual's gradient is diff_dst after the mask.
fn result(element: Element, coefficients: Coefficients) -> Outputs {
    var d = coefficients.gamma * element.d;
    if gated { d *= coefficients.beta; }
    return Outputs(coefficients.r * ((d - coefficients.a) - element.xhat * coefficients.b), element.d);
}

// Where mean and variance are constants, a and b are 0, and src matters only to the activation.
fn result_of_constants(element: Element, coefficients: Coefficients) -> Outputs {
    return Outputs(coefficients.r * (coefficients.gamma * element.d), element.d);
}

// The terms of the elements that are inside.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return Accumulator(select(real4(), element.d, inside), select(real4(), element.d * element.xhat, inside));
}

fn merge(a: Accumulator, b: Accumulator) -> Accumulator {
    return Accumulator(a.d + b.d, a.d_xhat + b.d_xhat);
}

// Weights the sums with gamma where it varies between the elements of a row, or between the channels of a group.
fn weigh(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    let scaled_sums = Accumulator(sums.d * coefficients.gamma, sums.d_xhat * coefficients.gamma);
    if gated { return Accumulator(scaled_sums.d * coefficients.beta, scaled_sums.d_xhat * coefficients.beta); }
    return scaled_sums;
}

fn horizontal_sum(sums: Accumulator) -> Total {
    return real2((sums.d.x + sums.d.y) + (sums.d.z + sums.d.w), (sums.d_xhat.x + sums.d_xhat.y) + (sums.d_xhat.z + sums.d_xhat.w));
}

// Adds what follows from the channel's sums, or from its group's, to the coefficients.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    if of_groups { return combine(coefficients, derived_of_group(coefficients, sums, sums, scalars)); }
    return combine(coefficients, derived(0u, sums, scalars));
}

// Derives the records that `combine` reads, side by side: the means of the sums.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    let b = sums.d_xhat * scalars.inverse_count;
    if !centered { return Words(real4(), b, real4(), real4()); }
    return Words(sums.d * scalars.inverse_count, b, real4(), real4());
}

// Derives the records of channels that share statistics with others: a channel's own sums, then the means of its
// group's.
fn derived_of_group(coefficients: Coefficients, own: Accumulator, group: Accumulator, scalars: Scalars) -> Words {
    let b = group.d_xhat * scalars.inverse_count;
    if !centered { return Words(own.d, own.d_xhat, real4(), b); }
    return Words(own.d, own.d_xhat, group.d * scalars.inverse_count, b);
}

fn words_of_total(record: Total) -> real4 {
    return real4(record, real2());
}

fn total_of(sums: Accumulator, i: u32) -> Total {
    return real2(sums.d[i], sums.d_xhat[i]);
}

fn accumulator_of(words: Words) -> Accumulator {
    return Accumulator(words.x, words.y);
}

// Writes the parameters' gradients of the first `count` of four channels. The gate's is Σ diff_dst · (x̂ · gamma + beta).
fn store_results(vec4_index: u32, sums: Accumulator, count: u32, scalars: Scalars) {
    var gate = real4(1.0);
    if gated { gate = load_gate(vec4_index); }
    store_first_diff_beta(vec4_index, gate * sums.d, count);
    store_first_diff_gamma(vec4_index, gate * sums.d_xhat, count);
    if gate_summed {
        store_first_diff_gate(vec4_index, load_gamma(vec4_index) * sums.d_xhat + load_beta(vec4_index) * sums.d, count);
    }
}
