// Sums of columns that the kernels over rows write.

var<workgroup> sums: array<real4, workgroup_size>;
var<workgroup> sums_xhat: array<real4, workgroup_size>;

struct ColumnSums {
    sum: real4,
    sum_xhat: real4,
}

// Invocations of a workgroup, from the first on, that have sums of columns to write.
fn writers() -> u32 {
    if !stacked { return workgroup_size; }
    // All of one lane have the same columns, or where rows do not begin at quads those of every fourth row.
    return select(min(4u * lanes, workgroup_size), lanes, same_columns);
}

// The sums of four columns: if `stacked`, invocations that have the same ones add theirs up in a fixed order, and the
// first of them get them. Every invocation calls it.
fn sums_of_columns(local: u32, own: real4, own_xhat: real4) -> ColumnSums {
    let keep = writers();
    if keep == workgroup_size { return ColumnSums(own, own_xhat); }
    sums[local] = own;
    sums_xhat[local] = own_xhat;
    workgroupBarrier();
    for (var stride = workgroup_size / 2u; stride >= keep; stride /= 2u) {
        if local < stride {
            sums[local] += sums[local + stride];
            sums_xhat[local] += sums_xhat[local + stride];
        }
        workgroupBarrier();
    }
    let total = ColumnSums(sums[local], sums_xhat[local]);
    workgroupBarrier(); // they are written again for the next columns
    return total;
}

// Writes a group's partial sums of the four columns from `column` on, of those in the row: `paired`, in rows of whole
// quads of columns, or where invocations' columns differ as
// workspace[partials + part · columns + column] = (Σ, Σ·x̂, 0, 0).
fn write_columns(local: u32, group: u32, column: u32, total: ColumnSums) {
    let keep = writers();
    if local >= keep { return; }
    let count = uniforms.columns;
    let part = group * (keep / lanes) + local / lanes;
    if same_columns {
        let quads = (count + 3u) / 4u;
        if column < count {
            store_paired(uniforms.partials + part * 2u * quads, column, total.sum, total.sum_xhat);
        }
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if column + i < count {
            let record = real4(total.sum[i], total.sum_xhat[i], 0.0, 0.0);
            store_workspace(uniforms.partials + part * count + column + i, record);
        }
    }
}
