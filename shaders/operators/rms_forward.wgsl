// RMS norm forward, four elements at a time: dst = x · r · gamma, where x = src + residual and
// r = 1 / sqrt(mean(x²) + epsilon).
//
// Needs: records, inverse_deviation.

// What an element's result depends on beside the element.
struct Cell {
    mean_square: real4,
    r: real4,
    gamma: real4,
}

struct Element {
    x: real4,
}

// Four sums of x² side by side.
struct Sums {
    x2: real4,
}

// The four of one row added up.
alias Record = real;

// Nothing is known before.
fn statistics_of(vec4_index: u32, epsilon: real) -> Cell {
    return Cell(real4(), real4(), real4(1.0));
}

fn with_params(cell: Cell, params: Params) -> Cell {
    return Cell(cell.mean_square, cell.r, params.gamma);
}

// Of records (0, 0, r, 0).
fn cell_of(words: Words) -> Cell {
    return Cell(real4(), words.z, real4(1.0));
}

fn record_of_cell(cell: Cell, i: u32) -> real4 {
    return real4(0.0, 0.0, cell.r[i], 0.0);
}

// Of a row, with the last two words of its record.
fn combine(cell: Cell, words: Words) -> Cell {
    return Cell(cell.mean_square, words.x, cell.gamma);
}

// A cell with what follows from its sums.
fn with_sums(cell: Cell, sums: Sums, scalars: Scalars) -> Cell {
    let mean_square = nan_unless_finite(sums.x2 * scalars.inverse_count);
    return Cell(mean_square, inverse_deviation(mean_square, scalars.epsilon), cell.gamma);
}

// The records of four cells, side by side.
fn derived(vec4_index: u32, sums: Sums, scalars: Scalars) -> Words {
    let cell = with_sums(statistics_of(vec4_index, scalars.epsilon), sums, scalars);
    return Words(real4(), real4(), cell.r, real4());
}

const rounds: u32 = 1;

fn begin_row(cell: Cell, src: real4, residual: real4) -> Cell {
    return cell;
}

fn next_round(cell: Cell) -> Cell {
    return cell;
}

// (0, Σ x², 0, 0), as `finish` takes it.
fn record_of_row(cell: Cell, count: real) -> real4 {
    return real4(0.0, cell.mean_square.x * count, 0.0, 0.0);
}

// What is known of a row, as tensors.
fn store_row(row: u32, cell: Cell) {
    store_one_mean_square(row, cell.mean_square.x);
}

fn element_of(src: real4, residual: real4, cell: Cell) -> Element {
    return Element(src + residual);
}

fn sum_of(element: Element) -> real4 {
    return element.x;
}

fn result(element: Element, cell: Cell) -> real4 {
    return element.x * cell.r * cell.gamma;
}

fn result_of_constants(element: Element, cell: Cell) -> real4 {
    return result(element, cell);
}

// An element's terms, those that are in the row.
fn terms(element: Element, cell: Cell, inside: vec4<bool>) -> Sums {
    return Sums(select(real4(), element.x * element.x, inside));
}

fn weigh(sums: Sums, gamma: real4) -> Sums {
    return sums;
}

fn merge(a: Sums, b: Sums) -> Sums {
    return Sums(a.x2 + b.x2);
}

fn across(sums: Sums) -> Record {
    return (sums.x2.x + sums.x2.y) + (sums.x2.z + sums.x2.w);
}

// Sums of elements one after another: plain sums, whatever the blocks.
alias Block = Sums;

const in_blocks: bool = false;
const block_vectors: u32 = 1;
const block_rows: u32 = 64;

fn begin(first: real4) -> Block {
    return Sums();
}

fn accumulate(block: Block, element: Element, inside: vec4<bool>) -> Block {
    return merge(block, terms(element, Cell(), inside));
}

fn end_block(sums: Sums, block: Block) -> Sums {
    return merge(sums, block);
}

// Sums as records of the workspace (0, Σ x², 0, 0), and back.
fn merge_records(a: Record, b: Record) -> Record {
    return a + b;
}

fn words_of_record(record: Record) -> real4 {
    return real4(0.0, record, 0.0, 0.0);
}

fn record_of(sums: Sums, i: u32) -> Record {
    return sums.x2[i];
}

fn sums_of(words: Words) -> Sums {
    return Sums(words.y);
}

// Two cells share a record.
const paired_records: bool = true;

fn pair_of(sums: Sums, pair: u32) -> real4 {
    return real4(0.0, sums.x2[2u * pair], 0.0, sums.x2[2u * pair + 1u]);
}

fn sums_of_pairs(first: real4, second: real4) -> Sums {
    return Sums(real4(first.yw, second.yw));
}

// The mean of the squares of four rows, the first `count`.
fn store_results(vec4_index: u32, sums: Sums, count: u32, scalars: Scalars) {
    store_part_mean_square(vec4_index, nan_unless_finite(sums.x2 * scalars.inverse_count), count);
}
