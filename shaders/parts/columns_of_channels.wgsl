// For channels that are columns, one or several to a channel, with statistics and parameters of its own (NXC, rank 2,
// short planes). A row holds `repeats` outer indices of channels · inner elements side by side, as many as fill whole
// vectors; column j belongs to channel (j / inner) mod channels. The last row may be incomplete, and end inside a
// vector.
// With `general` axes the last axis is kept and has `row_channels` channels. A batch is an index over the other kept
// axes. Its rows are its indices over the reduced axes, or, if `in_one_piece`, those of a tensor by itself, which
// consists of whole rows.

#import axes, body, columns, positions, records, vectors, sum_across
#import channels_given if reads_given, channels_recorded if not reads_given

fn start_of_row(batch: u32, row: u32) -> u32 {
    var own = row;
    if general && in_one_piece { own = batch * uniforms.rows + row; }
    if general && !in_one_piece { own = join_axes(uniforms.kept_axes, batch, row); }
    return start_of(own);
}

// Past the tensor's end, its last vector stands in.
fn vector_in_tensor(vector: u32) -> u32 {
    if complete { return vector; }
    return min(vector, (uniforms.length - 1u) / vector_elements);
}

// Writes a vector, as far as it is in the tensor.
fn store_in_tensor(vector: u32, outputs: VectorOutputs) {
    if complete {
        store_vector_outputs(vector, outputs);
    } else if vector <= (uniforms.length - 1u) / vector_elements {
        if ends_with_vector {
            store_vector_outputs(vector, outputs);
        } else {
            let left = uniforms.length - vector * vector_elements;
            store_first_vector_outputs(vector, outputs, min(vector_elements, left));
        }
    }
}

// Which of four columns of a row, from the k-th of the p-th vector on, are in the tensor.
fn inside_row(row_start: u32, first: u32, p: u32, k: u32, end_column: u32) -> vec4<bool> {
    if !aligned { return vec4(own_column(first, p) + 4u * k) + vec4(0u, 1u, 2u, 3u) < vec4(end_column); }
    if complete { return vec4(true); }
    let element = row_start * vector_elements + column_of(first, p) + 4u * k;
    let count = select(uniforms.length - element, 0u, element >= uniforms.length);
    return vec4(0u, 1u, 2u, 3u) < vec4(count);
}

// The records of the channels of four columns in a region of the workspace.
fn records_of_columns(region: u32, batch: u32, column: u32) -> Words {
    var position = position_at(column);
    return load_records(vec4(region + batch * uniforms.row_channels) + four_channels(&position));
}

// The coefficients of four columns before their sums, from tensors.
fn given_of_columns(batch: u32, column: u32) -> Coefficients {
    return given_of_channels(batch, column);
}

fn leave_records(batch: u32, column: u32, coefficients: Coefficients) {
    leave_records_of_channels(batch, column, coefficients);
}

// Rows have no parameters.
fn number_of_row(batch: u32, row: u32) -> u32 {
    return 0u;
}

fn params_of_row(param: u32) -> Params {
    return Params();
}

fn with_params_of_row(coefficients: Coefficients, params: Params) -> Coefficients {
    return coefficients;
}

fn accumulate_of_column(block: Block, element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Block {
    return accumulate(block, element, coefficients, inside);
}

fn terms_of_row(element: Element, coefficients: Coefficients, inside: vec4<bool>) -> Accumulator {
    return Accumulator();
}

// The number of a column's partial sum among those of a tile of rows. With general axes, a row consists of repeats of
// the last axis, each with channels of its own batch among those of all.
fn number_of(batch: u32, column: u32) -> u32 {
    if !general { return column; }
    let repeat = column / uniforms.row_channels;
    return repeat * uniforms.channels + batch * uniforms.row_channels + column % uniforms.row_channels;
}

// Where a workgroup has whole rows, adds up the columns of each channel, and writes the partial sum of the channel.
fn store_sums_by_channel(local: u32, row_tile: u32, batch: u32, first: u32, sums: ptr<function, ColumnSums>) {
    for (var p = 0u; p < column_vectors; p++) {
        let column = own_column(first, p);
        if local < threads_per_row && column < uniforms.end_column {
            for (var k = 0u; k < vector_vec4s; k++) {
                shared_sums[column / 4u + k] = (*sums)[p][k];
            }
        }
    }
    workgroupBarrier();
    let row_length = uniforms.row_channels * uniforms.inner;
    for (var channel = local; channel < uniforms.row_channels; channel += workgroup_size) {
        var total = Total();
        for (var start = channel * uniforms.inner; start + uniforms.inner <= uniforms.columns; start += row_length) {
            for (var j = start; j < start + uniforms.inner; j++) {
                total = merge_totals(total, total_of(shared_sums[j / 4u], j % 4u));
            }
        }
        let to = uniforms.partials + row_tile * uniforms.partial_stride + batch * uniforms.row_channels + channel;
        store_workspace(to, words_of_total(total));
    }
}
