// The sum over so many invocations of a row, a power of two that stand side by side, through the workgroup memory
// of the sums of columns.

fn row_sum(local: u32, count: u32, own: real2) -> real2 {
    if count == 1u { return own; }
    sums[local] = real4(own, real2());
    workgroupBarrier();
    let lane = local % count;
    for (var stride = count / 2u; stride > 0u; stride /= 2u) {
        if lane < stride {
            sums[local] += sums[local + stride];
        }
        workgroupBarrier();
    }
    let sum = sums[local - lane].xy;
    workgroupBarrier(); // sums is written again for the next row
    return sum;
}
