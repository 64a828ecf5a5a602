// Sums of columns, as the row kernels write them.

#import body, paired_sums

var<workgroup> shared_sums: array<Accumulator, shared_invocations>;

// The number of invocations of a workgroup, from the first on, that have sums of columns to write.
fn writers() -> u32 {
    if !add_thread_rows { return workgroup_size; }
    // Invocations `threads_per_row` apart have the same columns; where rows do not begin at vec4s, those four times as
    // far apart.
    return select(min(4u * threads_per_row, workgroup_size), threads_per_row, same_columns);
}

// The sums of four columns. If `add_thread_rows`, invocations that have the same columns add theirs up in a fixed
// order. Every invocation calls it.
fn sums_of_columns(local: u32, own: Accumulator) -> Accumulator {
    let keep = writers();
    if keep == workgroup_size { return own; }
    shared_sums[local] = own;
    workgroupBarrier();
    for (var stride = workgroup_size / 2u; stride >= keep; stride /= 2u) {
        if local < stride {
            shared_sums[local] = merge(shared_sums[local], shared_sums[local + stride]);
        }
        workgroupBarrier();
    }
    let total = shared_sums[local % keep];
    workgroupBarrier(); // they are overwritten for the next columns
    return total;
}

// Writes a tile's partial sums of four columns from `column` on, as far as they are in the row: two columns to a record
// in whole vec4s of columns (`paired_columns`), or workspace[partials + partial · columns + column].
fn write_columns(local: u32, row_tile: u32, column: u32, total: Accumulator) {
    let keep = writers();
    if local >= keep { return; }
    let count = uniforms.columns;
    let partial = row_tile * (keep / threads_per_row) + local / threads_per_row;
    if paired_columns {
        let vec4s = (count + 3u) / 4u;
        if column < count {
            store_paired(uniforms.partials + partial * 2u * vec4s, column, total);
        }
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if column + i < count {
            let record = words_of_total(total_of(total, i));
            store_workspace(uniforms.partials + partial * count + column + i, record);
        }
    }
}
