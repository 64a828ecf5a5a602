// Stores partial sums of four columns side by side, two columns to a record: record `first` + column / 2 has those of
// an even column and of the next.

#import body

fn store_paired(first: u32, column: u32, sums: Accumulator) {
    let to = first + column / 2u;
    store_workspace(to, pair_of(sums, 0u));
    store_workspace(to + 1u, pair_of(sums, 1u));
}
