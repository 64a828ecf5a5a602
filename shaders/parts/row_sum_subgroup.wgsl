// The sum over the invocations of a row, where they are of one subgroup: without a barrier, so that a GPU's
// subgroups do not wait for each other, and a software driver keeps the row in registers.

struct Invocation {
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) index: u32,
}

// The number in the workgroup, by which a row's invocations are neighbours in their subgroup.
fn local_of(invocation: Invocation) -> u32 {
    return invocation.subgroup * invocation.size + invocation.index;
}

fn row_sum(local: u32, own: real2) -> real2 {
    if lanes == workgroup_size { return real2(subgroupAdd(own.x), subgroupAdd(own.y)); }
    var sum = own;
    for (var stride = lanes / 2u; stride > 0u; stride /= 2u) {
        sum += real2(subgroupShuffleXor(sum.x, stride), subgroupShuffleXor(sum.y, stride));
    }
    return sum;
}
