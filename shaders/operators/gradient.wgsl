// The gradient of batch norm, group norm, layer norm and RMS norm, four elements at a time. If an activation follows
// the layer, diff_dst first goes back through it.
// diff_src = r · ((gamma · diff_dst − a) − x̂ · b), diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂, with
// x̂ = (src − mean) · r. With a gate, gamma stands for gamma · gate. a and b are the means of gamma · diff_dst and
// gamma · diff_dst · x̂ over the elements that share a mean.
// Where elements are not `centered`, mean and a are 0 and r = 1 / sqrt(mean_square + epsilon).

#import records, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    mean: real4,
    r: real4,
    params: Params,
    a: real4,
    b: real4,
}

// The values from which sums and result are computed.
struct Element {
    d: real4,
    xhat: real4,
}

// Loads mean and r = 1 / sqrt(variance + epsilon) of four channels from tensors.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    var known = Coefficients();
    known.params = neutral_params();
    if centered {
        known.mean = load_mean(vec4_index);
        known.r = inverse_deviation(load_variance(vec4_index), epsilon);
    } else {
        known.r = inverse_deviation(load_mean_square(vec4_index), epsilon);
    }
    return known;
}

// Reads records (mean, r, gamma, beta); in place of beta, which only an activation needs, the gate, which none follows.
fn coefficients_of(words: Words) -> Coefficients {
    var known = Coefficients();
    known.mean = words.x;
    known.r = words.y;
    known.params.gamma = words.z;
    if gated { known.params.gate = words.w; } else { known.params.beta = words.w; }
    return known;
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    let last = select(coefficients.params.beta, coefficients.params.gate, gated);
    return real4(coefficients.mean[i], coefficients.r[i], coefficients.params.gamma[i], last[i]);
}

// Adds what follows from the means of the sums. Those of a group's channels are already weighted with gamma; so are those
// of rows and of columns with parameters of rows, whose gamma is still 1 here.
fn combine(coefficients: Coefficients, means: Words) -> Coefficients {
    var known = coefficients;
    known.a = means.x;
    known.b = means.y;
    if !of_groups {
        known.a *= coefficients.params.gamma;
        known.b *= coefficients.params.gamma;
    }
    return known;
}

fn select_coefficients(f: Coefficients, t: Coefficients, condition: vec4<bool>) -> Coefficients {
    return Coefficients(
        select(f.mean, t.mean, condition),
        select(f.r, t.r, condition),
        select_params(f.params, t.params, condition),
        select(f.a, t.a, condition),
        select(f.b, t.b, condition),
    );
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    var x = inputs.src;
    if centered { x -= coefficients.mean; }
    let xhat = x * coefficients.r;
    let y = xhat * coefficients.params.gamma + coefficients.params.beta;
    return Element(activation_gradient(y, inputs.diff_dst), xhat);
}

// The residual's gradient is diff_dst after the mask.
fn result(element: Element, coefficients: Coefficients) -> Outputs {
    var d = coefficients.params.gamma * element.d;
    if gated { d *= coefficients.params.gate; }
    if centered { d -= coefficients.a; }
    return Outputs(coefficients.r * (d - element.xhat * coefficients.b), element.d);
}

fn record_of_row(coefficients: Coefficients, sums: Accumulator, count: real) -> real4 {
    return words_of_total(total_of(sums, 0u));
}

// Where mean and variance are constants, a and b are 0, and src matters only to the activation.
fn result_of_constants(element: Element, coefficients: Coefficients) -> Outputs {
    return Outputs(coefficients.r * (coefficients.params.gamma * element.d), element.d);
}

// The terms of the elements that are inside.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return accumulator(select(real4(), element.d, inside), select(real4(), element.d * element.xhat, inside));
}

// Weights the sums with gamma where it varies between the elements of a row, or between the channels of a group.
fn weigh(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    let scaled_sums = scale_sums(sums, coefficients.params.gamma);
    if gated { return scale_sums(scaled_sums, coefficients.params.gate); }
    return scaled_sums;
}

// Adds what follows from the channel's sums, or from its group's, to the coefficients.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    return combine(coefficients, derived(0u, sums, scalars));
}

// Derives the records that `combine` reads, side by side: the means of the sums.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    return Words(sum_d(sums) * scalars.inverse_count, sums.d_xhat * scalars.inverse_count, real4(), real4());
}

fn derived_of_group(coefficients: Coefficients, group: Accumulator, scalars: Scalars) -> Words {
    return derived(0u, group, scalars);
}

// Writes the parameters' gradients of the lanes of four channels. The gate's is Σ diff_dst · (x̂ · gamma +
// beta).
fn store_results(vec4_index: u32, sums: Accumulator, lanes: vec2<u32>, scalars: Scalars) {
    var gate = real4(1.0);
    if gated { gate = load_gate(vec4_index); }
    store_lanes_diff_beta(vec4_index, gate * sum_d(sums), lanes);
    store_lanes_diff_gamma(vec4_index, gate * sums.d_xhat, lanes);
    if gate_summed {
        store_lanes_diff_gate(vec4_index, load_gamma(vec4_index) * sums.d_xhat + load_beta(vec4_index) * sum_d(sums), lanes);
    }
}
