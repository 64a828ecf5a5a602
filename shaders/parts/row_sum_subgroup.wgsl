// Sums over `count` neighbouring invocations of a row, a power of two. Those of a subgroup, `threads_per_subgroup`, add
// theirs up by shuffles, without a barrier: a GPU's subgroups do not wait for each other, and a software driver keeps the
// row in registers. Several subgroups exchange their sums through the workgroup memory of the sums of columns.
// It relies on invocations being packed into subgroups by their index. All compilers do so where a workgroup has one
// dimension and consists of whole subgroups of one size.

#import body, records, column_sums

// Where the next sums go to the other half of the memory, 0 or 1, one barrier is enough: nobody overwrites a half before
// everybody is past the next sums' barrier.
fn row_sum(local: u32, count: u32, half: u32, own: Accumulator) -> Total {
    var sum = horizontal_sum(own);
    for (var stride = threads_per_subgroup / 2u; stride > 0u; stride /= 2u) {
        sum = merge_totals(sum, subgroupShuffleXor(sum, stride));
    }
    if count <= threads_per_subgroup { return sum; }
    let start = half * (workgroup_size / 2u);
    if local % threads_per_subgroup == 0u {
        shared_sums[start + local / threads_per_subgroup] = accumulator_of(splat(words_of_total(sum)));
    }
    workgroupBarrier();
    let first = start + local / count * (count / threads_per_subgroup);
    sum = total_of(shared_sums[first], 0u);
    for (var i = 1u; i < count / threads_per_subgroup; i++) {
        sum = merge_totals(sum, total_of(shared_sums[first + i], 0u));
    }
    return sum;
}
