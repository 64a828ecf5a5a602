// The sum over `count` neighbouring invocations of a row, a power of two, where they are of one subgroup. There is no
// barrier: a GPU's subgroups do not wait for each other, and a software driver keeps the row in registers.
// Invocations are packed into subgroups by their index, as all compilers do where a workgroup has one dimension
// and is made of whole subgroups of one size.

#import body

fn row_sum(local: u32, count: u32, own: Accumulator) -> Total {
    var sum = horizontal_sum(own);
    for (var stride = count / 2u; stride > 0u; stride /= 2u) {
        sum = merge_totals(sum, subgroupShuffleXor(sum, stride));
    }
    return sum;
}
