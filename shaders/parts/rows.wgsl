// What the kernels over rows (layer norm) share. A row is `columns` elements with statistics of its own;
// gamma and the parameters' gradients lie along it. `lanes` invocations stand side by side in a row and
// hold `column_packets` packets of its columns each; the workgroup's other invocations do other rows. Both are
// constants of the text, `lanes` is a power of two: a compiler keeps arrays in registers if their length is
// that of the loops over them.

override workgroup_size: u32 = 64u;
override complete: bool = false; // every invocation's packets are in the row
override scaled: bool = false;   // gamma is given
override summed: bool = false;   // the parameters' gradients are wanted
override folded: bool = false;   // a workgroup adds up its sums of a column before it writes them

var<workgroup> sums: array<real4, workgroup_size>;
var<workgroup> sums_xhat: array<real4, workgroup_size>;

// Writes a part's sums of the four columns from `column` on, of those below `count`: `paired`, or else as
// workspace[part + column] = (Σ, Σ·x̂, 0, 0). One that wraps is above all columns.
// If `folded`, invocations whose indices are alike modulo `keep`, a power of two, have the same columns and
// add theirs up in a fixed order; else `keep` is `workgroup_size`. Every invocation calls it.
fn write_columns(local: u32, keep: u32, paired: bool, part: u32, column: u32, count: u32, own: real4, own_xhat: real4) {
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
    if paired {
        if column < count { store_paired(part, column, sum, sum_xhat); }
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if column + i < count {
            store_workspace(part + column + i, real4(sum[i], sum_xhat[i], 0.0, 0.0));
        }
    }
}
