// Every struct, function and constant that a traversal asks of a body, with its default. A body defines those that have
// no default here, and those that it does differently: its definition replaces the default.
//
// Made for each kernel by src/kernels/source.rs, from the body's lists in bodies.rs and what follows the layer:
// * struct Inputs, struct Outputs: a real4 for each tensor that the body reads, or writes, element by element.
//   src/kernels/streams.rs makes the functions that load and store them.
// * statistics_given: the body reads statistics. centered: the mean is subtracted. of_groups: channels share statistics
//   with others. residual_after: a residual is added to the layer's output. has_params: there are parameters. gated: a
//   gate is among them; gate_summed: its gradient is wanted.
// * struct Accumulator, alias Total: the sums of terms so far, for four channels or for four shares of one; and the sums
//   of one channel. src/kernels/sums.rs makes the functions that convert between these and records, and sum_NAME(sums),
//   which is 0 for a sum that the body does not take.
// * row_reductions: how often a row in registers is reduced, each time with the coefficients that follow from the last
//   sums.
// * in_blocks, block_rows: whether elements are added in blocks, and how many rows a block has.
// * paired_records: the sums of two channels fit a record.
//
// Every body defines:
// * struct Coefficients, of real4s and `params: Params`: all that the result of four elements depends on besides the
//   elements. At first these are statistics and parameters, later also what follows from the sums.
// * struct Element: the values from which the terms and the result of four elements are computed.
// * fn coefficients_of(words: Words) -> Coefficients, fn record_of_coefficients(coefficients: Coefficients, i: u32)
//   -> real4: from records of the workspace, and channel i of the four to one.
// * fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words: the records, side by side, that follow from
//   the sums of four channels. fn combine(coefficients: Coefficients, words: Words) -> Coefficients adds them to the
//   coefficients, in another dispatch. fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) ->
//   Coefficients does both at once.
// * fn store_results(vec4_index: u32, sums: Accumulator, lanes: vec2<u32>, scalars: Scalars): writes the results of
//   those of four channels from lanes.x to lanes.y: statistics, or gradients of parameters.
// * fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element: called for the sums, with the coefficients
//   that are known before them, and for the result.
// * fn result(element: Element, coefficients: Coefficients) -> Outputs
// * fn select_coefficients(f: Coefficients, t: Coefficients, condition: vec4<bool>) -> Coefficients, only in bodies
//   over channels: for a vector whose elements belong to two of them.

#import records

// Loads the coefficients of four channels that are known before the sums, without parameters.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    return Coefficients();
}

// Four channels' records, side by side.
fn records_of_coefficients(coefficients: Coefficients) -> Words {
    return side_by_side(
        record_of_coefficients(coefficients, 0u),
        record_of_coefficients(coefficients, 1u),
        record_of_coefficients(coefficients, 2u),
        record_of_coefficients(coefficients, 3u),
    );
}

fn with_params(coefficients: Coefficients, params: Params) -> Coefficients {
    var known = coefficients;
    known.params = params;
    return known;
}

// Derives the records of channels that share statistics with others, from the sums of their groups.
fn derived_of_group(coefficients: Coefficients, group: Accumulator, scalars: Scalars) -> Words {
    return Words();
}

// The result where statistics are constants, or where a channel's record holds gamma and beta.
fn result_of_constants(element: Element, coefficients: Coefficients) -> Outputs {
    return result(element, coefficients);
}

// Says which of four elements the activation lets pass.
fn passes(element: Element, coefficients: Coefficients) -> vec4<bool> {
    return vec4(true);
}

// Weights sums before they are added to those of a row, or of a channel's group, along which gamma varies.
fn weigh(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    return sums;
}

// The terms of the elements that are inside; a body without this function has blocks of its own.
fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return Accumulator();
}

// Sums that do not just add up are merged otherwise.
fn merge(a: Accumulator, b: Accumulator) -> Accumulator {
    return add_sums(a, b);
}

// Merges the sums of one channel.
fn merge_totals(a: Total, b: Total) -> Total {
    let one = accumulator_of(splat(words_of_total(a)));
    return total_of(merge(one, accumulator_of(splat(words_of_total(b)))), 0u);
}

// Merges the four, where they belong to one channel.
fn horizontal_sum(sums: Accumulator) -> Total {
    return merge_totals(
        merge_totals(total_of(sums, 0u), total_of(sums, 1u)),
        merge_totals(total_of(sums, 2u), total_of(sums, 3u)),
    );
}

// Packs the sums of two of four channels into a record, and unpacks the four from two records.
fn pair_of(sums: Accumulator, pair: u32) -> real4 {
    let first = words_of_total(total_of(sums, 2u * pair));
    let second = words_of_total(total_of(sums, 2u * pair + 1u));
    return real4(first.xy, second.xy);
}

fn accumulator_of_pairs(first: real4, second: real4) -> Accumulator {
    return accumulator_of(Words(real4(first.xz, second.xz), real4(first.yw, second.yw), real4(), real4()));
}

// A block: some elements added one after another. `begin` gets the first of them, which may become a shift, and
// `end_block` adds the block to the accumulator.
alias Block = Accumulator;

fn begin(first: Inputs, coefficients: Coefficients) -> Block {
    return Accumulator();
}

fn accumulate(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    return merge(block, terms(element, coefficients, inside));
}

// Adds an element of a column along which gamma varies.
fn accumulate_weighed(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    return merge(block, weigh(terms(element, coefficients, inside), coefficients));
}

fn end_block(sums: Accumulator, block: Block) -> Accumulator {
    return merge(sums, block);
}

// For a row in registers, or for four columns. `begin_row` is called before its sums are taken, with an element of the
// row, and `next_reduction` before they are taken again. `store_statistics` writes the statistics of four columns,
// `store_row` those of a row, or of one of four columns; `record_of_row` is the record from which another dispatch
// writes them, or the gradients of a row's parameters.
fn begin_row(coefficients: Coefficients, first: Inputs) -> Coefficients {
    return coefficients;
}

fn next_reduction(coefficients: Coefficients) -> Coefficients {
    return coefficients;
}

fn store_row(row: u32, coefficients: Coefficients, i: u32) {}

fn store_statistics(vec4_index: u32, coefficients: Coefficients) {}

fn record_of_row(coefficients: Coefficients, sums: Accumulator, count: real) -> real4 {
    return real4();
}

// For a row that is read twice. The first two words of its record are statistics, the others follow from the sums.
fn row_coefficients(record: real4) -> Coefficients {
    return coefficients_of(splat(real4(record.xy, 1.0, 0.0)));
}

fn row_record(record: real4, sums: Accumulator, scalars: Scalars) -> real4 {
    let words = derived(0u, sums, scalars);
    return real4(record.xy, words.x.x, words.y.x);
}

fn row_coefficients_with_sums(record: real4) -> Coefficients {
    return combine(row_coefficients(record), splat(real4(record.zw, real2())));
}
