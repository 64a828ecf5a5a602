// Sums over teams of neighbouring invocations, in an order that never changes: subgroups, if there are any
// (`subgroups`), exchange theirs behind one barrier, else invocations add theirs up in a tree.

#import body, threads, shuffles if subgroups, no_shuffles if not subgroups

var<workgroup> team_totals: array<Total, team_invocations>;

// Every invocation calls it with its own share and the same `count`, a power of two, and gets its team's sum. Calls go
// to the two halves of the memory in turns, `half` 0 and 1: nobody overwrites one before everybody is past the next
// call's barrier. Otherwise a barrier comes before the next call.
fn team_sum(local: u32, count: u32, half: u32, own: Total) -> Total {
    var sum = total_of_subgroup(own, count);
    if count <= subgroup_size { return sum; }
    let member = thread_of(local, count);
    if subgroups {
        let start = half * (workgroup_size / 2u);
        if local % subgroup_size == 0u { team_totals[start + local / subgroup_size] = sum; }
        workgroupBarrier();
        let first = start + (local - member) / subgroup_size;
        sum = team_totals[first];
        for (var i = 1u; i < count / subgroup_size; i++) {
            sum = merge_totals(sum, team_totals[first + i]);
        }
        return sum;
    }
    team_totals[local] = sum;
    workgroupBarrier();
    for (var stride = count / 2u; stride > 1u; stride /= 2u) {
        if member < stride {
            team_totals[local] = merge_totals(team_totals[local], team_totals[local + stride]);
        }
        workgroupBarrier();
    }
    sum = merge_totals(team_totals[local - member], team_totals[local - member + 1u]);
    workgroupBarrier(); // they are overwritten by the next call
    return sum;
}
