// The sum over the invocations of a row, through the workgroup memory of the sums of columns.

fn row_sum(local: u32, own: real2) -> real2 {
    if lanes == 1u { return own; }
    sums[local] = real4(own, real2());
    workgroupBarrier();
    let lane = local % lanes;
    for (var stride = lanes / 2u; stride > 0u; stride /= 2u) {
        if lane < stride {
            sums[local] += sums[local + stride];
        }
        workgroupBarrier();
    }
    let sum = sums[local - lane].xy;
    workgroupBarrier(); // sums is written again for the next row
    return sum;
}
