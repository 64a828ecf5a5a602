// The gradient of batch norm, of group norm and of layer norm, four elements at a time. diff_dst is first taken through the
// activation that follows the layer, if there is one.
// diff_src = r · ((gamma · diff_dst − a) − x̂ · b), diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂, with
// x̂ = (src − mean) · r. a and b are the means of gamma · diff_dst and gamma · diff_dst · x̂ over the elements that
// share a mean.

#import records, activation, inverse_deviation

// What an element's result depends on beside the element.
struct Cell {
    mean: real4,
    r: real4,
    gamma: real4,
    beta: real4, // for the activation
    a: real4,
    b: real4,
}

// What sums and result are made of.
struct Element {
    d: real4,
    xhat: real4,
}

// Four sums side by side, of one cell or of four.
struct Sums {
    d: real4,
    d_xhat: real4,
}

// The four of one cell added up.
alias Record = real2;

// Of tensors: mean and r = 1 / sqrt(variance + epsilon) of four cells, without gamma.
fn statistics_of(vec4_index: u32, epsilon: real) -> Cell {
    let r = inverse_deviation(load_variance(vec4_index), epsilon);
    return Cell(load_mean(vec4_index), r, real4(1.0), real4(), real4(), real4());
}

fn with_params(cell: Cell, params: Params) -> Cell {
    return Cell(cell.mean, cell.r, params.gamma, params.beta, cell.a, cell.b);
}

// Of records (mean, r, gamma, beta).
fn cell_of(words: Words) -> Cell {
    return Cell(words.x, words.y, words.z, words.w, real4(), real4());
}

fn record_of_cell(cell: Cell, i: u32) -> real4 {
    return real4(cell.mean[i], cell.r[i], cell.gamma[i], cell.beta[i]);
}

// The same with what follows from the means of the sums. Those of a group's cells are weighted with gamma already.
fn combine(cell: Cell, means: Words) -> Cell {
    if of_groups { return Cell(cell.mean, cell.r, cell.gamma, cell.beta, means.z, means.w); }
    let scale = scale_of(cell);
    return Cell(cell.mean, cell.r, cell.gamma, cell.beta, scale * means.x, scale * means.y);
}

// gamma, unless it counts for the activation alone.
fn scale_of(cell: Cell) -> real4 {
    if gamma_ignored { return real4(1.0); }
    return cell.gamma;
}

fn select_cell(f: Cell, t: Cell, condition: vec4<bool>) -> Cell {
    return Cell(
        select(f.mean, t.mean, condition),
        select(f.r, t.r, condition),
        select(f.gamma, t.gamma, condition),
        select(f.beta, t.beta, condition),
        select(f.a, t.a, condition),
        select(f.b, t.b, condition),
    );
}

fn element_of(inputs: Inputs, cell: Cell) -> Element {
    let xhat = (inputs.src - cell.mean) * cell.r;
    return Element(activation_gradient(xhat * cell.gamma + cell.beta, inputs.diff_dst), xhat);
}

// The residual's gradient is what the mask leaves of diff_dst.
fn result(element: Element, cell: Cell) -> Outputs {
    return Outputs(cell.r * ((scale_of(cell) * element.d - cell.a) - element.xhat * cell.b), element.d);
}

// Where mean and variance are constants, a and b are 0, and src counts for the activation alone.
fn result_of_constants(element: Element, cell: Cell) -> Outputs {
    return Outputs(cell.r * (scale_of(cell) * element.d), element.d);
}

// An element's terms, those that are in the cell.
fn terms(element: Element, cell: Cell, inside: vec4<bool>) -> Sums {
    return Sums(select(real4(), element.d, inside), select(real4(), element.d * element.xhat, inside));
}

fn merge(a: Sums, b: Sums) -> Sums {
    return Sums(a.d + b.d, a.d_xhat + b.d_xhat);
}

// The sums with gamma, where it varies between the elements of a row, or between the cells of a group.
fn weigh(sums: Sums, cell: Cell) -> Sums {
    if gamma_ignored { return sums; }
    return Sums(sums.d * cell.gamma, sums.d_xhat * cell.gamma);
}

fn across(sums: Sums) -> Record {
    return real2((sums.d.x + sums.d.y) + (sums.d.z + sums.d.w), (sums.d_xhat.x + sums.d_xhat.y) + (sums.d_xhat.z + sums.d_xhat.w));
}

// A cell with what follows from its sums, or from those of its group.
fn with_sums(cell: Cell, sums: Sums, scalars: Scalars) -> Cell {
    if of_groups { return combine(cell, derived_of_group(cell, sums, sums, scalars)); }
    return combine(cell, derived(0u, sums, scalars));
}

// What `combine` asks for, as records side by side: the means of sums.
fn derived(vec4_index: u32, sums: Sums, scalars: Scalars) -> Words {
    return Words(sums.d * scalars.inverse_count, sums.d_xhat * scalars.inverse_count, real4(), real4());
}

// The same of cells that share statistics with others: the cell's own sums, then the means of the group's.
fn derived_of_group(cell: Cell, own: Sums, group: Sums, scalars: Scalars) -> Words {
    return Words(own.d, own.d_xhat, group.d * scalars.inverse_count, group.d_xhat * scalars.inverse_count);
}

fn words_of_record(record: Record) -> real4 {
    return real4(record, real2());
}

fn record_of(sums: Sums, i: u32) -> Record {
    return real2(sums.d[i], sums.d_xhat[i]);
}

fn sums_of(words: Words) -> Sums {
    return Sums(words.x, words.y);
}

// The parameters' gradients of four channels, the first `count`.
fn store_results(vec4_index: u32, sums: Sums, count: u32, scalars: Scalars) {
    store_part_diff_beta(vec4_index, sums.d, count);
    store_part_diff_gamma(vec4_index, sums.d_xhat, count);
}
