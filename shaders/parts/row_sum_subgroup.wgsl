// The sum over the invocations of a row, where they are of one subgroup: without a barrier, so that a GPU's
// subgroups do not wait for each other, and a software driver keeps the row in registers.
// Invocations are packed into subgroups by their index, as all compilers do where a workgroup has one dimension
// and is made of whole subgroups of one size.

fn row_sum(local: u32, own: real2) -> real2 {
    if lanes == workgroup_size { return real2(subgroupAdd(own.x), subgroupAdd(own.y)); }
    var sum = own;
    for (var stride = lanes / 2u; stride > 0u; stride /= 2u) {
        sum += real2(subgroupShuffleXor(sum.x, stride), subgroupShuffleXor(sum.y, stride));
    }
    return sum;
}
