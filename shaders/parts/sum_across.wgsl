// Sums of four columns over invocations of a workgroup, in an order that never changes: subgroups, if there are any
// (`subgroups`), exchange theirs behind one barrier, else invocations add theirs up in a tree.

#import body, shuffles if subgroups, no_shuffles if not subgroups

var<workgroup> shared_sums: array<Accumulator, summing_invocations>;

// The sum over the invocations whose indices differ in the bits from `low` to below `high` alone, powers of two. Every
// invocation calls it with its own share and the same bits, and gets the sum. A barrier comes before the memory is
// used again.
fn sum_across(local: u32, low: u32, high: u32, own: Accumulator) -> Accumulator {
    var sum = sum_of_subgroup(own, low, high);
    let step = max(low, subgroup_size);
    if high <= step { return sum; }
    shared_sums[local] = sum;
    workgroupBarrier();
    let member = local & (high - 1u);
    if subgroups {
        let first = local - member + (local & (low - 1u));
        sum = shared_sums[first];
        for (var next = step; next < high; next += step) {
            sum = merge(sum, shared_sums[first + next]);
        }
    } else {
        for (var stride = high / 2u; stride >= low; stride /= 2u) {
            if member < stride {
                shared_sums[local] = merge(shared_sums[local], shared_sums[local + stride]);
            }
            workgroupBarrier();
        }
        sum = shared_sums[local - member + (local & (low - 1u))];
    }
    return sum;
}
