// Sums over neighbouring invocations of a subgroup, by shuffles, without a barrier. It relies on invocations being
// packed into subgroups by their index. All compilers do so where a workgroup has one dimension and consists of whole
// subgroups of one size.

#import body, records

// The sum over `count` neighbours, or over the subgroup if it has fewer.
fn total_of_subgroup(own: Total, count: u32) -> Total {
    var sum = own;
    for (var stride = min(count, subgroup_size) / 2u; stride > 0u; stride /= 2u) {
        sum = merge_totals(sum, subgroupShuffleXor(sum, stride));
    }
    return sum;
}

// The sums over the subgroup's invocations whose indices differ in the bits from `low` to below `high` alone.
fn sum_of_subgroup(own: Accumulator, low: u32, high: u32) -> Accumulator {
    var sum = own;
    for (var stride = min(high, subgroup_size) / 2u; stride >= low; stride /= 2u) {
        sum = merge(sum, accumulator_of(side_by_side(
            words_of_total(subgroupShuffleXor(total_of(sum, 0u), stride)),
            words_of_total(subgroupShuffleXor(total_of(sum, 1u), stride)),
            words_of_total(subgroupShuffleXor(total_of(sum, 2u), stride)),
            words_of_total(subgroupShuffleXor(total_of(sum, 3u), stride)),
        )));
    }
    return sum;
}
