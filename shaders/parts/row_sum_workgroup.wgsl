// Sums over `count` neighbouring invocations of a row, a power of two, through the workgroup memory of the sums of
// columns, in a tree: `half` does not matter.

#import body, column_sums

fn row_sum(local: u32, count: u32, half: u32, own: Accumulator) -> Total {
    if count == 1u { return horizontal_sum(own); }
    shared_sums[local] = own;
    workgroupBarrier();
    let thread = local % count;
    for (var stride = count / 2u; stride > 0u; stride /= 2u) {
        if thread < stride {
            shared_sums[local] = merge(shared_sums[local], shared_sums[local + stride]);
        }
        workgroupBarrier();
    }
    let sum = horizontal_sum(shared_sums[local - thread]);
    workgroupBarrier(); // they are overwritten for the next row
    return sum;
}
