// Sums of columns, as rows_fused writes them.

#import body, paired_sums

const summing_invocations: u32 = 1u + (workgroup_size - 1u) * u32(add_thread_rows);

// The number of invocations of a workgroup, from the first on, that have sums of columns to write.
fn writers() -> u32 {
    if !add_thread_rows { return workgroup_size; }
    // Invocations `threads_per_row` apart have the same columns; where rows do not begin at vec4s, those four times as
    // far apart.
    return select(min(4u * threads_per_row, workgroup_size), threads_per_row, same_columns);
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
