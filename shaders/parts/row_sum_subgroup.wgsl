// Sums over `count` neighbouring invocations of a row, a power of two, that belong to one subgroup. There is no
// barrier: a GPU's subgroups do not wait for each other, and a software driver keeps the row in registers.
// It relies on invocations being packed into subgroups by their index. All compilers do so where a workgroup has one
// dimension and consists of whole subgroups of one size.

#import body

fn row_sum(local: u32, count: u32, own: Accumulator) -> Total {
    var sum = horizontal_sum(own);
    for (var stride = count / 2u; stride > 0u; stride /= 2u) {
        sum = merge_totals(sum, subgroupShuffleXor(sum, stride));
    }
    return sum;
}
