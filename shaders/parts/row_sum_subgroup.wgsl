// The sum over so many invocations of a row, a power of two that stand side by side, where they are of one
// subgroup: without a barrier, so that a GPU's subgroups do not wait for each other, and a software driver keeps
// the row in registers.
// Invocations are packed into subgroups by their index, as all compilers do where a workgroup has one dimension
// and is made of whole subgroups of one size.

fn row_sum(local: u32, count: u32, own: real2) -> real2 {
    if count == workgroup_size { return real2(subgroupAdd(own.x), subgroupAdd(own.y)); }
    var sum = own;
    for (var stride = count / 2u; stride > 0u; stride /= 2u) {
        sum += real2(subgroupShuffleXor(sum.x, stride), subgroupShuffleXor(sum.y, stride));
    }
    return sum;
}
