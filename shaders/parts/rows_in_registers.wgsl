// For in_registers where statistics belong to rows, and parameters to columns.

#import body, batches, columns, columns_of_rows, copied_params, params, records, team_sum, vectors

const team_invocations: u32 = workgroup_size;

fn tile_at(index: u32) -> Tile {
    var batch = 0u;
    var partial = index;
    if of_samples {
        let of_a_batch = uniforms.row_tiles * uniforms.misalignments;
        batch = index / of_a_batch;
        partial %= of_a_batch;
    }
    if aligned { return Tile(batch, rows_of(partial), partial); }
    let offset = partial % uniforms.misalignments * thread_rows;
    return Tile(batch, rows_of(partial / uniforms.misalignments) + vec2(offset, 0u), partial);
}

fn step_at(tile: Tile, row: u32) -> Step {
    return Step(tile.batch, row, tile.steps.y, 0u);
}

// The parameters that an invocation holds for four columns of its rows.
fn held_params(batch: u32, column: u32) -> Params {
    if of_planes { return neutral_params(); }
    return params_of_columns(batch, column);
}

// The parameters of four columns of a row: of planes, of four elements or more if there are several, the channels'.
fn params_in_row(held: Params, batch: u32, row: u32, column: u32) -> Params {
    if !(of_planes && has_params) { return held; }
    let channel = row % (uniforms.row_channels / uniforms.group_channels) * uniforms.group_channels;
    if uniforms.group_channels == 1u { return params_of_plane(channel); }
    // Of a vec4 that begins before the row, or ends after it, the columns in the row.
    let four = vec4<i32>(vec4(column) + vec4(0u, 1u, 2u, 3u));
    let columns = vec4<u32>(clamp(four, vec4(0), vec4(i32(uniforms.columns) - 1)));
    let plane = columns.x / uniforms.inner;
    let next = (plane + 1u) * uniforms.inner;
    let own = params_of_plane(channel + plane);
    if columns.w < next { return own; }
    return select_params(own, params_of_plane(channel + plane + 1u), columns >= vec4(next));
}

fn params_of_plane(channel: u32) -> Params {
    return splat_params(given_params(channel / 4u), channel % 4u);
}

// The coefficients of a row before its sums.
fn begin_tile(batch: u32, row: u32, first: u32, misalignment: u32) -> Coefficients {
    let number = number_of_row(batch, row);
    let record = record_of_coefficients(statistics_of(number / 4u, uniforms.epsilon), number % 4u);
    let inputs = load_in_row(start_of_row(batch, row), 0u, 0u);
    return begin_row(coefficients_of(splat(record)), splat_inputs(inputs[0], misalignment));
}

// An element's terms, weighted. A gradient's planes are one to a row, whose sums are weighted as a whole: unweighted
// they are those of the parameters' gradients.
fn weighed(sums: Accumulator, coefficients: Coefficients) -> Accumulator {
    if of_planes { return sums; }
    return weigh(sums, coefficients);
}

fn weighed_total(sums: Accumulator, batch: u32, row: u32, coefficients: Coefficients) -> Accumulator {
    if !of_planes { return sums; }
    return weigh(sums, with_params(coefficients, params_in_row(neutral_params(), batch, row, 0u)));
}

// Which of a vec4's elements count, in a row that may be past the last.
fn inside_tile(misalignment: u32, first: u32, p: u32, k: u32, is_row: bool) -> vec4<bool> {
    if complete && summed { return vec4(is_row); }
    return inside_row(misalignment, first, p, k, select(0u, uniforms.end_column, is_row));
}

// The sums of a row.
fn sum_of_tile(local: u32, half: u32, own: Accumulator) -> Accumulator {
    return accumulator_of(splat(words_of_total(team_sum(local, threads_per_row, half, horizontal_sum(own)))));
}

// The sums of a row are those of its tile.
fn inside_row_of_tile(first: u32, p: u32, is_row: bool) -> vec4<bool> {
    return vec4(false);
}

fn store_sums_of_row(local: u32, column_tile: u32, row: u32, half: u32, own: Total) {}

fn store_statistics_of_tile(
    local: u32,
    batch: u32,
    row: u32,
    end: u32,
    first: u32,
    coefficients: Coefficients,
    sums: Accumulator,
) {
    if local % threads_per_row > 0u || row >= end { return; }
    let number = number_of_row(batch, row);
    if kept { store_workspace(uniforms.stats + number, record_of_row(coefficients, sums, real(uniforms.columns))); }
    if stored { store_row(number, coefficients, 0u); }
}
