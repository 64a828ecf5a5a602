// The sum over the invocations of a row, where the workgroup is one subgroup and does one row at a time:
// without a barrier, so that a software driver keeps the row in registers.

fn row_sum(local: u32, own: real2) -> real2 {
    if lanes == 1u { return own; }
    return real2(subgroupAdd(own.x), subgroupAdd(own.y));
}
