// The gradient of RMS norm, four elements at a time.
// diff_src = r · (gamma · diff_dst − x̂ · b), and diff_gamma = Σ diff_dst · x̂ over the rows, with x̂ = src · r.
// b is the mean of gamma · diff_dst · x̂ over the elements of a row.
//
// Needs: records, inverse_deviation.

// What an element's result depends on beside the element.
struct Cell {
    r: real4,
    gamma: real4,
    b: real4,
}

// What sums and result are made of.
struct Element {
    d: real4,
    xhat: real4,
}

// Four sums side by side, of one cell or of four.
struct Sums {
    d_xhat: real4,
}

// The four of one cell added up.
alias Record = real;

// Of tensors: r = 1 / sqrt(mean_square + epsilon) of four cells, without gamma.
fn statistics_of(vec4_index: u32, epsilon: real) -> Cell {
    return Cell(inverse_deviation(load_mean_square(vec4_index), epsilon), real4(1.0), real4());
}

fn with_params(cell: Cell, params: Params) -> Cell {
    return Cell(cell.r, params.gamma, cell.b);
}

// Of records (0, r, gamma, 0).
fn cell_of(words: Words) -> Cell {
    return Cell(words.y, words.z, real4());
}

fn record_of_cell(cell: Cell, i: u32) -> real4 {
    return real4(0.0, cell.r[i], cell.gamma[i], 0.0);
}

// The same with what follows from the means of the sums.
fn combine(cell: Cell, means: Words) -> Cell {
    return Cell(cell.r, cell.gamma, cell.gamma * means.y);
}

fn element_of(src: real4, diff_dst: real4, cell: Cell) -> Element {
    return Element(diff_dst, src * cell.r);
}

fn result(element: Element, cell: Cell) -> real4 {
    return cell.r * (cell.gamma * element.d - element.xhat * cell.b);
}

// An element's terms, those that are in the cell.
fn terms(element: Element, cell: Cell, inside: vec4<bool>) -> Sums {
    return Sums(select(real4(), element.d * element.xhat, inside));
}

fn merge(a: Sums, b: Sums) -> Sums {
    return Sums(a.d_xhat + b.d_xhat);
}

// Of a row: once is enough, from what statistics say.
const rounds: u32 = 1;

fn begin_row(cell: Cell, first: real4, second: real4) -> Cell {
    return cell;
}

fn next_round(cell: Cell) -> Cell {
    return cell;
}

fn record_of_row(cell: Cell, count: real) -> real4 {
    return real4();
}

// Statistics are given.
fn store_row(row: u32, cell: Cell) {}

// Nothing is added before the layer.
fn sum_of(element: Element) -> real4 {
    return real4();
}

// The sums with gamma, where it varies between the elements of a row.
fn weigh(sums: Sums, gamma: real4) -> Sums {
    return Sums(sums.d_xhat * gamma);
}

fn across(sums: Sums) -> Record {
    return (sums.d_xhat.x + sums.d_xhat.y) + (sums.d_xhat.z + sums.d_xhat.w);
}

// A cell with what follows from its sums.
fn with_sums(cell: Cell, sums: Sums, scalars: Scalars) -> Cell {
    return combine(cell, derived(0u, sums, scalars));
}

// What `combine` asks for, as records side by side: the means of sums.
fn derived(vec4_index: u32, sums: Sums, scalars: Scalars) -> Words {
    return Words(real4(), sums.d_xhat * scalars.inverse_count, real4(), real4());
}

// Sums as records of the workspace (0, Σ diff_dst · x̂, 0, 0), and back.
fn merge_records(a: Record, b: Record) -> Record {
    return a + b;
}

fn words_of_record(record: Record) -> real4 {
    return real4(0.0, record, 0.0, 0.0);
}

fn record_of(sums: Sums, i: u32) -> Record {
    return sums.d_xhat[i];
}

fn sums_of(words: Words) -> Sums {
    return Sums(words.y);
}

// Two cells share a record.
const paired_records: bool = true;

fn pair_of(sums: Sums, pair: u32) -> real4 {
    return real4(0.0, sums.d_xhat[2u * pair], 0.0, sums.d_xhat[2u * pair + 1u]);
}

fn sums_of_pairs(first: real4, second: real4) -> Sums {
    return Sums(real4(first.yw, second.yw));
}

// The parameters' gradients of four columns, the first `count`.
fn store_results(vec4_index: u32, sums: Sums, count: u32, scalars: Scalars) {
    store_part_diff_gamma(vec4_index, sums.d_xhat, count);
}
