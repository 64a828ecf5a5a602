// Sums over teams of neighbouring invocations, in an order that never changes: subgroups, if there are any
// (`subgroups`), exchange theirs behind one barrier, else invocations add theirs up in a tree.

#import body, threads, shuffles if subgroups, no_shuffles if not subgroups

var<workgroup> team_totals: array<Total, workgroup_size>;

// Every invocation calls it with its own share and the same `count`, a power of two, and gets its team's sum. A barrier
// comes before the next call.
fn team_sum(local: u32, count: u32, own: Total) -> Total {
    var sum = total_of_subgroup(own, count);
    if count <= subgroup_size { return sum; }
    let member = thread_of(local, count);
    if subgroups {
        if local % subgroup_size == 0u { team_totals[local / subgroup_size] = sum; }
        workgroupBarrier();
        let first = (local - member) / subgroup_size;
        sum = team_totals[first];
        for (var i = 1u; i < count / subgroup_size; i++) {
            sum = merge_totals(sum, team_totals[first + i]);
        }
        return sum;
    }
    team_totals[local] = sum;
    workgroupBarrier();
    for (var stride = count / 2u; stride > 0u; stride /= 2u) {
        if member < stride {
            team_totals[local] = merge_totals(team_totals[local], team_totals[local + stride]);
        }
        workgroupBarrier();
    }
    return team_totals[local - member];
}
