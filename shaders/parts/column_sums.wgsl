// Sums of columns that the kernels over rows write.

override summed: bool = false; // the parameters' gradients are wanted
override stacked: bool = false; // a workgroup adds up its sums of a column before it writes them

var<workgroup> sums: array<real4, workgroup_size>;
var<workgroup> sums_xhat: array<real4, workgroup_size>;

// Writes a group's sums of the four columns from `column` on, of those in the row: `paired`, from
// workspace[partials + part · columns / 2] on, or where rows do not begin at quads as
// workspace[partials + part · columns + column] = (Σ, Σ·x̂, 0, 0).
// If `stacked`, invocations of the workgroup that have the same columns add theirs up in a fixed order: all of one
// lane, or where rows do not begin at quads those of every fourth row. The others write parts of their own.
// Every invocation calls it.
fn write_columns(local: u32, group: u32, column: u32, own: real4, own_xhat: real4) {
    var keep = workgroup_size;
    if stacked { keep = select(min(4u * lanes, workgroup_size), lanes, aligned); }
    var sum = own;
    var sum_xhat = own_xhat;
    if keep < workgroup_size {
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
        sum = sums[local];
        sum_xhat = sums_xhat[local];
        workgroupBarrier(); // they are written again for the next columns
    }
    if local >= keep { return; }
    let count = uniforms.columns;
    let part = group * (keep / lanes) + local / lanes;
    if aligned {
        if column < count { store_paired(uniforms.partials + part * (count / 2u), column, sum, sum_xhat); }
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if column + i < count {
            store_workspace(uniforms.partials + part * count + column + i, real4(sum[i], sum_xhat[i], 0.0, 0.0));
        }
    }
}
