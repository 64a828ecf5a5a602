// Sums over a workgroup, in a tree whose order never changes. `workgroup_size` is a power of two.

#import body

var<workgroup> scratch: array<Total, workgroup_size>;

// Leaves the sum over all invocations in scratch[0].
fn workgroup_sum(local: u32, value: Total) {
    scratch[local] = value;
    workgroupBarrier();
    for (var stride = workgroup_size / 2u; stride > 0u; stride /= 2u) {
        if local < stride {
            scratch[local] = merge_totals(scratch[local], scratch[local + stride]);
        }
        workgroupBarrier();
    }
}
