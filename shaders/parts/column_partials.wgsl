// Partial sums of columns.

#import body, paired_sums

// Writes a partial sum of four columns: a record for each, or one for two columns (`paired_columns`).
fn store_partials(partial: u32, batch: u32, column: u32, sums: Accumulator) {
    let first = uniforms.partials + partial * uniforms.partial_stride;
    if paired_columns {
        store_paired(first, number_of(batch, column), sums);
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if aligned || column + i < uniforms.end_column {
            store_workspace(first + number_of(batch, column + i), words_of_total(total_of(sums, i)));
        }
    }
}
