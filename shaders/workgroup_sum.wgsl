// Sums over a workgroup: a tree in an order that never changes. `workgroup_size` is a power of two.

override workgroup_size: u32 = 64u;

var<workgroup> scratch: array<real2, workgroup_size>;

// Leaves in scratch[k], k < keep, the sum over all invocations whose index is k modulo `keep`.
fn workgroup_sum(local: u32, value: real2, keep: u32) {
    scratch[local] = value;
    workgroupBarrier();
    for (var stride = workgroup_size / 2u; stride >= keep; stride /= 2u) {
        if local < stride {
            scratch[local] += scratch[local + stride];
        }
        workgroupBarrier();
    }
}
