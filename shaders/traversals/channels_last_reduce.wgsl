// The reduction, channels last (NXC, rank 2, short planes): writes partial sums of each channel, for the gradient of
// batch norm Σ diff_dst and Σ diff_dst · x̂. A forward pass writes partial statistics instead, which are never
// `paired`.
//
// The tensor is read as rows of `width` columns. A row holds `repeats` outer indices of channels · inner elements side
// by side, as many as fill whole vectors; column j belongs to channel (j / inner) mod channels. A single row may end
// inside its last vector. An invocation owns some vectors of columns, `threads_per_row` apart, and walks the rows of a
// split; the invocations of a workgroup that own the same columns add up their sums in a fixed order. Then they write
// * workspace[partials + split · width + j] = (Σ, Σ·x̂, 0, 0) for column j;
// * or, if `paired`, two columns to a record, from workspace[partials + split · width / 2] on;
// * or, if `by_channel`, where a workgroup owns whole rows, a channel's columns added up, to
//   workspace[partials + split · channels + c].
// With `general` axes the last axis is kept and has `row_channels` channels. A batch is an index over the other kept
// axes. Its rows are its indices over the reduced axes, or, if `in_one_piece`, those of a tensor by itself, which
// consists of whole rows. Column j is in repeat k = j / row_channels of its row, and its partial sum at
// (split · repeats + k) · channels + batch · row_channels + j mod row_channels.
// With constant statistics the gradient does not need the sums: the same pass writes diff_src = gamma · r · diff_dst.
//
// Bindings: src, diff_dst and mask (for a gradient) read; workspace read and written; diff_src and with a mask
// diff_residual (optional) written, or diff_dst in place. No text writes dst, the result of a forward pass.
// Moves 2 n elements in (n forward), and n out if diff_src is bound.

#import tiles, threads, body, records, vectors, channels_last, sum_across, thread_rows_sum, paired_sums

alias RowInputs = array<VectorInputs, column_vectors>;
alias RowBlocks = array<array<Block, vector_vec4s>, column_vectors>;
alias RowCoefficients = array<array<Coefficients, vector_vec4s>, column_vectors>;

const summing_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn channels_last_reduce(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread_rows = team_of(workgroup_size, uniforms.threads_per_row);
    let thread_row = team_of(local, uniforms.threads_per_row);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
    let split = tile / uniforms.column_tiles % uniforms.row_tiles;
    let first = first_column(tile, thread_of(local, uniforms.threads_per_row));

    var coefficients: RowCoefficients;
    var sums: array<array<Accumulator, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        var position = position_of(column_of(first, p));
        for (var k = 0u; k < vector_vec4s; k++) {
            coefficients[p][k] = coefficients_of(load_records(vec4(uniforms.stats) + channels_of(batch, &position)));
            sums[p][k] = Accumulator();
        }
    }

    let row_end = min(uniforms.rows, (split + 1u) * uniforms.tile_rows);
    for (var row = split * uniforms.tile_rows + thread_row; row < row_end;) {
        var block_end = row_end;
        if in_blocks { block_end = min(row_end, row + block_rows * thread_rows); }
        var blocks = RowBlocks();
        if in_blocks {
            for (var p = 0u; p < column_vectors; p++) {
                let row_start = row_start_of(batch, row);
                var inputs = load_vector_inputs(vector_of(row_start, first, p));
                for (var k = 0u; k < vector_vec4s; k++) {
                    // Elements past the tensor's end may be NaN, and a shift of NaN would stay in the sums.
                    let inside = inside_tensor((row_start + column_of(first, p)) * vector_vec4s + k);
                    blocks[p][k] = begin(select_inputs(Inputs(), inputs[k], inside), coefficients[p][k]);
                }
            }
        }
        // Several rows are loaded before the first is used, so that more loads are under way.
        for (; row < block_end && block_end - row > (rows_at_once - 1u) * thread_rows;) {
            var inputs = array<RowInputs, rows_at_once>();
            for (var q = 0u; q < rows_at_once; q++) {
                inputs[q] = load_row(row_start_of(batch, row + q * thread_rows), first);
            }
            for (var q = 0u; q < rows_at_once; q++) {
                add_row(&blocks, row_start_of(batch, row), first, inputs[q], &coefficients);
                row += thread_rows;
            }
        }
        for (; rows_at_once > 1u && row < block_end; row += thread_rows) {
            let row_start = row_start_of(batch, row);
            add_row(&blocks, row_start, first, load_row(row_start, first), &coefficients);
        }
        for (var p = 0u; p < column_vectors; p++) {
            for (var k = 0u; k < vector_vec4s; k++) {
                sums[p][k] = end_block(sums[p][k], blocks[p][k]);
            }
        }
        if !in_blocks { break; }
    }

    for (var p = 0u; p < column_vectors; p++) {
        let column = first + p * uniforms.threads_per_row;
        for (var k = 0u; k < vector_vec4s; k++) {
            sums[p][k] = sum_of_thread_rows(local, uniforms.threads_per_row, sums[p][k]);
            if !by_channel && thread_row == 0u && column < uniforms.end_vector {
                store_columns(batch, split, vector_elements * column + 4u * k, sums[p][k]);
            }
        }
    }

    if !by_channel { return; }
    for (var p = 0u; p < column_vectors; p++) {
        let column = first + p * uniforms.threads_per_row;
        if thread_row == 0u && column < uniforms.end_vector {
            for (var k = 0u; k < vector_vec4s; k++) {
                shared_sums[column * vector_vec4s + k] = sums[p][k];
            }
        }
    }
    workgroupBarrier();
    let row_length = uniforms.row_channels * uniforms.inner;
    for (var channel = local; channel < uniforms.row_channels; channel += workgroup_size) {
        var total = Total();
        let width = vector_elements * uniforms.width_vectors;
        for (var start = channel * uniforms.inner; start + uniforms.inner <= width; start += row_length) {
            for (var j = start; j < start + uniforms.inner; j++) {
                total = merge_totals(total, total_of(shared_sums[j / 4u], j % 4u));
            }
        }
        let to = split * uniforms.channels + batch * uniforms.row_channels + channel;
        store_workspace(uniforms.partials + to, words_of_total(total));
    }
}

// The invocation's vectors of a row.
fn load_row(row_start: u32, first: u32) -> RowInputs {
    var inputs: RowInputs;
    for (var p = 0u; p < column_vectors; p++) {
        inputs[p] = load_vector_inputs(vector_of(row_start, first, p));
    }
    return inputs;
}

// Adds a row to the sums. Where mean and variance are constants, it writes the row's outputs, too.
fn add_row(
    blocks: ptr<function, RowBlocks>,
    row_start: u32,
    first: u32,
    row_inputs: RowInputs,
    coefficients: ptr<function, RowCoefficients>,
) {
    var inputs = row_inputs;
    for (var p = 0u; p < column_vectors; p++) {
        var outputs = VectorOutputs();
        for (var k = 0u; k < vector_vec4s; k++) {
            let element = element_of(inputs[p][k], (*coefficients)[p][k]);
            let inside = inside_tensor((row_start + column_of(first, p)) * vector_vec4s + k);
            (*blocks)[p][k] = accumulate((*blocks)[p][k], element, (*coefficients)[p][k], inside);
            outputs[k] = result_of_constants(element, (*coefficients)[p][k]);
        }
        store_in_row(row_start, first, p, outputs);
    }
}

// Writes the sums of four columns from column j on.
fn store_columns(batch: u32, split: u32, j: u32, sums: Accumulator) {
    if paired {
        store_paired(uniforms.partials, number_of(batch, split, j), sums);
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        store_workspace(uniforms.partials + number_of(batch, split, j + i), words_of_total(total_of(sums, i)));
    }
}

// The number of a column's partial sum among those of all splits.
fn number_of(batch: u32, split: u32, j: u32) -> u32 {
    let width = vector_elements * uniforms.width_vectors;
    if !general { return split * width + j; }
    let index = split * (width / uniforms.row_channels) + j / uniforms.row_channels;
    return index * uniforms.channels + batch * uniforms.row_channels + j % uniforms.row_channels;
}
