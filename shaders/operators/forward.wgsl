// Batch norm, group norm and layer norm forward, four elements at a time: dst = gate · (x̂ · gamma + beta), where
// x̂ = (x − shift) · r + base, x is src, or for layer norm src + residual, mean = shift + δ,
// r = 1 / sqrt(variance + epsilon) and base = −δ · r. Batch norm and group norm add a residual after that
// (`residual_after`). The activation, if there is one, comes last.
// Mean and variance need one reading. Elements come in blocks of at most 32. Each block's shift is one of its elements,
// so that plain sums of e = x − shift and e² stay small whatever the mean is. A block's sums become (count, shift, δ,
// M2) with mean = shift + δ and variance = M2 / count, and merge by Chan's formula. A merge keeps the shift that is
// nearer to the merged mean.
// Where elements are not `centered`, shift and δ are 0, and M2 / count is the mean of squares.

#import records, params, layer_output, activation, inverse_deviation

// All that an element's result depends on besides the element.
struct Coefficients {
    shift: real4,
    base: real4, // x̂ of shift
    r: real4,
    params: Params,
}

// Loads statistics where they are given; otherwise nothing is known before the sums.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    var known = Coefficients();
    known.r = real4(1.0);
    known.params = neutral_params();
    if statistics_given && centered {
        known.shift = load_mean(vec4_index);
        known.r = inverse_deviation(load_variance(vec4_index), epsilon);
    } else if statistics_given {
        known.r = inverse_deviation(load_mean_square(vec4_index), epsilon);
    }
    return known;
}

// Reads records (shift, base · gamma + beta, r · gamma, gate).
fn coefficients_of(words: Words) -> Coefficients {
    var known = Coefficients();
    known.shift = words.x;
    known.base = words.y;
    known.r = words.z;
    known.params = neutral_params();
    known.params.gate = words.w;
    return known;
}

fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    let params = coefficients.params;
    var offset = params.beta[i];
    // By given statistics base is 0, and 0 · ∞ would make NaN of an infinite gamma.
    if !statistics_given { offset += coefficients.base[i] * params.gamma[i]; }
    return real4(coefficients.shift[i], offset, coefficients.r[i] * params.gamma[i], params.gate[i]);
}

// For a row, whose record is (shift, base, r, 1): adds the record's last two words to the coefficients.
fn combine(coefficients: Coefficients, words: Words) -> Coefficients {
    var known = coefficients;
    known.r = words.x;
    return known;
}

// Adds what follows from the sums to the coefficients. Until then r and base say how dst follows from x̂: they are 1
// and 0, or, where they come from a record, gamma and beta.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    var known = coefficients;
    known.shift = sums.shift;
    known.r = inverse_deviation(sums.m2 / max(sums.count, real4(1.0)), scalars.epsilon);
    // Without elements nothing is written. The condition keeps a compiler from computing (x − (shift + δ)) · r.
    known.base = select(real4(), -sums.delta * known.r, sums.count > real4());
    known.params.gamma = coefficients.r * coefficients.params.gamma;
    known.params.beta = coefficients.base * coefficients.params.gamma + coefficients.params.beta;
    return known;
}

// Derives the records of four channels, side by side.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    let given = with_params(statistics_of(vec4_index, scalars.epsilon), load_params(vec4_index));
    return derived_of_group(given, sums, scalars);
}

// Derives the records of channels that share statistics with others.
fn derived_of_group(coefficients: Coefficients, group: Accumulator, scalars: Scalars) -> Words {
    let all = with_sums(coefficients, group, scalars);
    let params = all.params;
    return Words(all.shift, all.base * params.gamma + params.beta, all.r * params.gamma, params.gate);
}

fn select_coefficients(f: Coefficients, t: Coefficients, condition: vec4<bool>) -> Coefficients {
    return Coefficients(
        select(f.shift, t.shift, condition),
        select(f.base, t.base, condition),
        select(f.r, t.r, condition),
        select_params(f.params, t.params, condition),
    );
}

fn result(element: Element, coefficients: Coefficients) -> Outputs {
    return Outputs(activation(before_activation(element, coefficients)), element.x);
}

fn passes(element: Element, coefficients: Coefficients) -> vec4<bool> {
    return !at_most_zero(before_activation(element, coefficients));
}

fn before_activation(element: Element, coefficients: Coefficients) -> real4 {
    let params = coefficients.params;
    return after_params(x_hat(element, coefficients) * params.gamma + params.beta, element, coefficients);
}

fn x_hat(element: Element, coefficients: Coefficients) -> real4 {
    return (element.x - coefficients.shift) * coefficients.r + coefficients.base;
}

// A channel's record holds gamma and beta in r and base.
fn result_of_constants(element: Element, coefficients: Coefficients) -> Outputs {
    return Outputs(activation(after_params(x_hat(element, coefficients), element, coefficients)), element.x);
}

// An empty accumulator has no shift: the distance from 0 to the other's shift is no step, and its square, which a
// compiler may compute first, may overflow.
fn merge(a: Accumulator, b: Accumulator) -> Accumulator {
    let count = a.count + b.count;
    let total = max(count, real4(1.0));
    let both = (a.count > real4()) & (b.count > real4());
    let step = select(real4(), (b.shift - a.shift) + (b.delta - a.delta), both);
    let from_a = a.delta + step * (b.count / total);
    let from_b = b.delta - step * (a.count / total);
    let take_b = (a.count == real4()) | (both & (abs(from_b) < abs(from_a)));
    return Accumulator(
        count,
        select(a.shift, b.shift, take_b),
        select(from_a, from_b, take_b),
        (a.m2 + b.m2) + step * (step * (a.count * (b.count / total))),
    );
}

struct Block {
    shift: real4,
    e: real4,
    e2: real4,
    count: real4,
}

fn begin(first: Inputs, coefficients: Coefficients) -> Block {
    var block = Block();
    if centered { block.shift = element_of(first, coefficients).x; }
    return block;
}

fn accumulate(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    let e = select(real4(), element.x - block.shift, inside);
    let one = select(real4(), real4(1.0), inside);
    return Block(block.shift, block.e + e, block.e2 + e * e, block.count + one);
}

fn accumulate_weighed(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    return accumulate(block, element, coefficients, inside);
}

fn end_block(sums: Accumulator, block: Block) -> Accumulator {
    if !centered { return merge(sums, Accumulator(block.count, real4(), real4(), block.e2)); }
    let mean = block.e / max(block.count, real4(1.0));
    // Only rounding makes this negative. Drivers turn NaN into 0 in `max` with 0, and in `select`.
    let m2 = abs(block.e2 - block.e * mean);
    return merge(sums, Accumulator(block.count, block.shift, mean, m2));
}

// Writes mean and biased variance of the lanes of four channels, and updates running statistics, except those
// of channels without elements.
fn store_results(vec4_index: u32, sums: Accumulator, lanes: vec2<u32>, scalars: Scalars) {
    if !centered {
        store_lanes_mean_square(vec4_index, nan_unless_finite(sums.m2) / max(sums.count, real4(1.0)), lanes);
        return;
    }
    let mean = sums.shift + sums.delta;
    store_lanes_mean(vec4_index, mean, lanes);
    let m2 = nan_unless_finite(sums.m2);
    store_lanes_variance(vec4_index, m2 / max(sums.count, real4(1.0)), lanes);
    let weight = select(real4(), real4(scalars.running_weight), sums.count > real4());
    let variance = m2 / max(sums.count - real4(scalars.running_correction), real4(1.0));
    let rest = real4(1.0) - weight;
    store_lanes_running_mean(vec4_index, rest * load_running_mean(vec4_index) + weight * mean, lanes);
    store_lanes_running_variance(vec4_index, rest * load_running_variance(vec4_index) + weight * variance, lanes);
}
