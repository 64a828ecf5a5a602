// What a traversal asks of a body: every struct, function and constant, and its default. A body defines what has no default
// here, and what it does otherwise; a definition of the body's takes the default's place.
//
// Made for each kernel from the body's entry in src/kernels/bodies.rs:
// * struct Inputs, struct Outputs: a real4 for each tensor that the body reads, or writes, element by element. The functions
//   that load and store them stand in src/kernels/streams.rs.
// * statistics_given: the body reads statistics. of_groups: channels share statistics with others. residual_after: a residual
//   is added to the layer's output. gamma_ignored: gamma counts for the activation alone.
// * row_reductions: how often a row that registers hold is reduced, each time with the coefficients that the last sums gave.
// * in_blocks, block_vectors, block_rows: whether sums are taken in blocks, and of how many vectors or rows.
// * paired_records: the sums of two channels fit a record.
//
// Every body defines:
// * struct Coefficients, of real4s: what the result of four elements depends on beside the elements. Statistics and parameters first,
//   later what follows from the sums.
// * struct Element: what the terms and the result of four elements are made of.
// * struct Accumulator, of real4s: sums of terms, those of four channels or four parts of one.
// * alias Total: the sums of one channel.
// * fn with_params(coefficients: Coefficients, params: Params) -> Coefficients: the coefficients with gamma and beta.
// * fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients, or `combine` and `derived`.
// * fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element: called for the sums, with what is known before them, and for the result.
// * fn result(element: Element, coefficients: Coefficients) -> Outputs
// * fn terms(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator: the terms of the elements that are inside.
// * fn merge(a: Accumulator, b: Accumulator) -> Accumulator
// * fn horizontal_sum(sums: Accumulator) -> Total: the four side by side put together, where they are of one channel.
// * fn total_of(sums: Accumulator, i: u32) -> Total: one of the four.
// * fn select_coefficients(f: Coefficients, t: Coefficients, condition: vec4<bool>) -> Coefficients, of channels alone: for a
//   vector whose elements are of two of them.
// * fn words_of_total(record: Total) -> real4, fn accumulator_of(words: Words) -> Accumulator: to the workspace and back.

#import records

// What is known of four channels from their tensors, before sums, and without gamma and beta.
fn statistics_of(vec4_index: u32, epsilon: real) -> Coefficients {
    return Coefficients();
}

// The same in the workspace, and back.
fn record_of_coefficients(coefficients: Coefficients, i: u32) -> real4 {
    return real4();
}

fn coefficients_of(words: Words) -> Coefficients {
    return Coefficients();
}

// What follows from the sums of four channels, as records side by side: what `combine` takes, after another dispatch.
fn derived(vec4_index: u32, sums: Accumulator, scalars: Scalars) -> Words {
    return Words();
}

// The same of channels that share statistics with others: of their own sums, and those of their group.
fn derived_of_group(coefficients: Coefficients, own: Accumulator, group: Accumulator, scalars: Scalars) -> Words {
    return Words();
}

// The coefficients with that.
fn combine(coefficients: Coefficients, words: Words) -> Coefficients {
    return coefficients;
}

// Both at once.
fn with_sums(coefficients: Coefficients, sums: Accumulator, scalars: Scalars) -> Coefficients {
    return combine(coefficients, derived(0u, sums, scalars));
}

// What is written of four channels, the first `count`: statistics, or gradients of parameters.
fn store_results(vec4_index: u32, sums: Accumulator, count: u32, scalars: Scalars) {}

// Where statistics are constants, or the record of a channel holds gamma and beta.
fn result_of_constants(element: Element, coefficients: Coefficients) -> Outputs {
    return result(element, coefficients);
}

// Which of four elements an activation lets pass.
fn passes(element: Element, coefficients: Coefficients) -> vec4<bool> {
    return vec4(true);
}

// What sums add to those of a row, or of a channel's group, along which gamma varies.
fn weigh(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    return sums;
}

fn merge_totals(a: Total, b: Total) -> Total {
    return a + b;
}

// Two of four channels in a record, and back.
fn pair_of(sums: Accumulator, pair: u32) -> real4 {
    let first = words_of_total(total_of(sums, 2u * pair));
    let second = words_of_total(total_of(sums, 2u * pair + 1u));
    return real4(first.xy, second.xy);
}

fn accumulator_of_pairs(first: real4, second: real4) -> Accumulator {
    return accumulator_of(Words(real4(first.xz, second.xz), real4(first.yw, second.yw), real4(), real4()));
}

// Some elements added up one after another: from the first of them, of which a shift may be made, to the sums.
alias Block = Accumulator;

fn begin(first: Inputs) -> Block {
    return Accumulator();
}

fn accumulate(block: Block, element: Element, inside: vec4<bool>) -> Block {
    return merge(block, terms(element, Coefficients(), inside));
}

fn end_block(sums: Accumulator, block: Block) -> Accumulator {
    return merge(sums, block);
}

// Of a row that registers hold: before its sums are taken, of an element of it; before they are taken again; what is written
// of it; and what another dispatch makes that of.
fn begin_row(coefficients: Coefficients, first: Inputs) -> Coefficients {
    return coefficients;
}

fn next_reduction(coefficients: Coefficients) -> Coefficients {
    return coefficients;
}

fn store_row(row: u32, coefficients: Coefficients) {}

fn record_of_row(coefficients: Coefficients, count: real) -> real4 {
    return real4();
}

// Of a row that is read twice. The first two words of its record are statistics, the others follow from the sums.
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
