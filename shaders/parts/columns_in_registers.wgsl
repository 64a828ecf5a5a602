// For in_registers where statistics belong to columns of batches, and parameters to rows.

#import body, batches, columns, columns_of_batches, row_partials, team_sum, thread_rows_sum

const team_invocations: u32 = 1u + (workgroup_size - 1u) * u32(summed);

fn tile_at(index: u32) -> Tile {
    return Tile(0u, column_tiles_of(index), 0u);
}

fn step_at(tile: Tile, column_tile: u32) -> Step {
    return Step(batch_of(column_tile), 0u, uniforms.rows, column_tile);
}

fn held_params(batch: u32, column: u32) -> Params {
    return neutral_params();
}

fn params_in_row(held: Params, batch: u32, row: u32, column: u32) -> Params {
    return params_of_row(number_of_row(batch, row));
}

// The coefficients of a vec4 of columns before its sums.
fn begin_tile(batch: u32, row: u32, first: u32, misalignment: u32) -> Coefficients {
    if statistics_given { return statistics_at(batch, column_of(first, 0u)); }
    let inputs = load_in_row(start_of_row(batch, 0u), first, 0u);
    return begin_row(with_params(Coefficients(), neutral_params()), inputs[0]);
}

// Which of a vec4's elements count, in a row that may be past the last. Nobody uses sums of columns past the end.
fn inside_tile(misalignment: u32, first: u32, p: u32, k: u32, is_row: bool) -> vec4<bool> {
    return vec4(is_row);
}

// The sums of these columns.
fn sum_of_tile(local: u32, half: u32, own: Accumulator) -> Accumulator {
    return sum_of_thread_rows(local, threads_per_row, own);
}

// Which of a vec4's elements count in the sums of a row, which may be past the last.
fn inside_row_of_tile(first: u32, p: u32, is_row: bool) -> vec4<bool> {
    return inside_columns(first, p, select(0u, uniforms.end_column, is_row));
}

// Writes a partial sum of a row, the parameters' gradients, of a walk from a column tile on. All invocations take part.
fn store_sums_of_row(local: u32, column_tile: u32, row: u32, half: u32, own: Total) {
    let joint = team_sum(local, threads_per_partial, half, own);
    if local % threads_per_partial > 0u || row >= uniforms.rows { return; }
    let group = column_tile / uniforms.walked_tiles % uniforms.row_groups;
    let to = row_partial(local, group, number_of_row(batch_of(column_tile), row));
    // A window that ended inside a walk has left a part of the sum.
    var before = real4();
    if !one_tile && column_tile % uniforms.walked_tiles > 0u { before = load_workspace(to); }
    store_workspace(to, before + words_of_total(joint));
}

fn weighed(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    return weigh(sums, coefficients);
}

fn weighed_total(sums: Accumulator, batch: u32, row: u32, coefficients: Coefficients) -> Accumulator {
    return sums;
}

fn store_statistics_of_tile(
    local: u32,
    batch: u32,
    row: u32,
    end: u32,
    first: u32,
    coefficients: Coefficients,
    sums: Accumulator,
) {
    if local >= threads_per_row || own_column(first, 0u) >= uniforms.end_column { return; }
    store_statistics_at(batch, column_of(first, 0u), coefficients);
}
