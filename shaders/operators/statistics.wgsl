// Mean and variance in one reading, four elements at a time: for forward passes, which are not there yet; tests run it.
// Elements come in blocks of at most 16. A block subtracts one of its elements, the shift, from all: plain sums of
// e = src − shift and e² stay small whatever the mean is. A block's sums become (count, shift, δ, M2) with
// mean = shift + δ and variance = M2 / count, which merge by Chan's formula. Of two shifts the first is kept.
//
// Needs: records.

// Nothing is known before.
struct Cell {
    gamma: real4,
}

struct Element {
    src: real4,
}

// Four cells side by side, or four parts of one.
struct Sums {
    count: real4,
    shift: real4,
    delta: real4,
    m2: real4,
}

// Count, shift, δ, M2.
alias Record = real4;

fn cell_of(words: Words) -> Cell {
    return Cell(real4(1.0));
}

fn element_of(src: real4, diff_dst: real4, cell: Cell) -> Element {
    return Element(src);
}

// Statistics write no data.
fn result_of_constants(element: Element, cell: Cell) -> real4 {
    return real4();
}

fn merge(a: Sums, b: Sums) -> Sums {
    let count = a.count + b.count;
    let part = b.count / max(count, real4(1.0));
    let shift = select(a.shift, b.shift, a.count == real4());
    let step = (b.shift - shift) + (b.delta - a.delta);
    return Sums(count, shift, a.delta + step * part, (a.m2 + b.m2) + step * step * (a.count * part));
}

fn merge_records(a: Record, b: Record) -> Record {
    let count = a.x + b.x;
    let part = b.x / max(count, 1.0);
    let shift = select(a.y, b.y, a.x == 0.0);
    let step = (b.y - shift) + (b.z - a.z);
    return Record(count, shift, a.z + step * part, (a.w + b.w) + step * step * (a.x * part));
}

fn across(sums: Sums) -> Record {
    return merge_records(
        merge_records(record_of(sums, 0u), record_of(sums, 1u)),
        merge_records(record_of(sums, 2u), record_of(sums, 3u)),
    );
}

const in_blocks: bool = true;
const block_vectors: u32 = 2;
const block_rows: u32 = 16;

struct Block {
    shift: real4,
    e: real4,
    e2: real4,
    count: real4,
}

fn begin(first: real4) -> Block {
    return Block(first, real4(), real4(), real4());
}

fn accumulate(block: Block, element: Element, inside: vec4<bool>) -> Block {
    let e = select(real4(), element.src - block.shift, inside);
    let one = select(real4(), real4(1.0), inside);
    return Block(block.shift, block.e + e, block.e2 + e * e, block.count + one);
}

fn end_block(sums: Sums, block: Block) -> Sums {
    let mean = block.e / max(block.count, real4(1.0));
    return merge(sums, Sums(block.count, block.shift, mean, max(block.e2 - block.e * mean, real4())));
}

fn words_of_record(record: Record) -> real4 {
    return record;
}

fn record_of(sums: Sums, i: u32) -> Record {
    return Record(sums.count[i], sums.shift[i], sums.delta[i], sums.m2[i]);
}

// A record has no room for two cells: they are not paired.
fn pair_of(sums: Sums, pair: u32) -> real4 {
    return real4();
}
