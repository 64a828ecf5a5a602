// A walk over rows and columns: it takes their sums (`reduced`), or writes the result of each element (`applied`), or
// both. Statistics belong to one of three:
// * a channel, whose columns are `of_channels`, with parameters that belong to the channel, too (NXC, rank 2);
// * a column `of_batches`, with parameters that belong to rows (norms over channels, NCX);
// * a row, where walks are `of_rows`, with parameters that belong to columns (layer and RMS norm).
//
// A gradient has sums of columns and, unless those are channels, of rows. Of these two, the one that has the statistics
// is weighted with gamma; the other's sums are the parameters' gradients. Channels' sums are not weighted. For layer
// norm, with d = diff_dst · gamma, a row's are Σd and Σ d·x̂, a column's Σ diff_dst and Σ diff_dst · x̂. A forward pass
// takes the statistics of each column. The results are diff_src = r · ((d − a) − x̂ · b), with a = Σd / m and
// b = Σ d·x̂ / m, or dst, and with a residual before the layer the sum of both.
//
// Unless records of what is known before the sums are there (`recorded`), a reduction leaves them for the elementwise
// pass.
//
// Reduced, a workgroup leaves partial sums of its columns, or, if it has all rows (`direct`), writes the gradients of
// columns' parameters. Applied, an invocation has coefficients from the workspace, with a gradient's means (`has_means`),
// or from the tensors of statistics. For both at once a tile has all rows of channels, so that the sums are complete:
// then the workgroup writes the channels' statistics, or the gradients of their parameters, and reads its columns again.
// `threads_per_partial` neighbouring invocations leave a partial sum of a row:
// workspace[row_partials + row · partials_per_row + partial] = (Σ, Σ·x̂, 0, 0); one that is all of the row's becomes its
// means, in its record. Where rows of all batches share parameters, their partial sums are those of all batches. A
// workgroup that walks several column tiles adds their sums up.
// A reduction of channels with constant statistics that binds diff_src writes it, too: it needs no sums.
//
// Bindings: src (not for a gradient by constant statistics without an activation), diff_dst and mask (for a gradient),
// residual (applied, optional), parameters (optional, or in the workspace) read; statistics (unless in the workspace)
// read, or written by a forward pass that is reduced and applied; running_mean, running_variance (optional) read and
// written; workspace (optional) read and written; diff_src and with a mask diff_residual written, or diff_dst in place,
// or dst, sum (with a residual before the layer) written (applied), at once or one after another; gradients of
// parameters (reduced and applied, or direct) written.
// Moves 2 n elements in (n forward), and n out if applied, or 2 n with sum; reduced and applied 2 n (n forward) more in,
// unless the second reading is cached. n / 32 words more in, and n elements more out, for a mask.

#import tiles, body, records, scalars, vectors, columns, column_partials, row_partials, team_sum, thread_rows_sum
#import columns_aligned if aligned, columns_misaligned if not aligned
#import statistics_of_rows if of_rows, statistics_of_columns if not of_rows, batches if not of_channels
#import columns_of_channels if of_channels, columns_of_batches if of_batches, columns_of_rows if of_rows

alias RowInputs = array<VectorInputs, column_vectors>;
alias Columns = array<array<KnownOfColumns, vector_vec4s>, column_vectors>;
alias ColumnBlocks = array<array<Block, vector_vec4s>, column_vectors>;

const leaves_records: bool = reduced && reads_given;
const adds_rows: bool = (of_rows && reduced) || (!of_rows && summed);
const adds_columns: bool = (of_rows && summed) || (!of_rows && reduced);
const in_order: bool = of_rows && applied && !aligned;
const long_rows: bool = of_rows;
const add_thread_rows: bool = adds_columns && threads_per_row < workgroup_size;
const summing_invocations: u32 = 1u + (workgroup_size - 1u) * u32(add_thread_rows);
const team_invocations: u32 = 1u + (workgroup_size - 1u) * u32(adds_rows);

@compute @workgroup_size(workgroup_size)
fn columns_walk(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tiles = column_tiles_of(index);
    var half = 0u; // of the memory of rows' sums
    // A loop around barriers costs a driver for the CPU its registers.
    if one_tile {
        if tiles.x < tiles.y { walk_tile(local, index, tiles.x, &half); }
    } else {
        for (var tile = tiles.x; tile < tiles.y; tile++) {
            walk_tile(local, index, tile, &half);
        }
    }
}

// Walks a column tile.
fn walk_tile(local: u32, index: u32, tile: u32, half: ptr<function, u32>) {
    let row_tile = row_tile_of(index);
    let rows = rows_of(row_tile);
    let thread_rows = workgroup_size / threads_per_row;
    let thread_row = local / threads_per_row;
    var columns: Columns;
    var sums: ColumnSums;
    var blocks: ColumnBlocks;
    let batch = batch_of(tile);
    let own_first = first_column_of(tile, local);
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            columns[p][k] = known_of_columns(batch, column_of(own_first, p) + 4u * k);
            sums[p][k] = Accumulator();
            let column = own_column(own_first, p) + 4u * k;
            if leaves_records && row_tile == 0u && thread_row == 0u && column < uniforms.end_column {
                leave_known_of_columns(batch, column, columns[p][k]);
            }
        }
    }

    if reduced {
        // In blocks, so that rounding errors of equal terms do not pile up. A gradient's reduction is one block: the plan
        // keeps it short.
        var block_rows_walked = uniforms.tile_rows;
        if in_blocks || applied { block_rows_walked = block_rows * thread_rows; }
        for (var start = rows.x; start < rows.y; start += block_rows_walked) {
            let end = min(rows.y, start + block_rows_walked);
            let first_row = min(start + thread_row, rows.y - 1u);
            let row_start = start_of_row(batch, first_row);
            let known = known_of_row(batch, first_row);
            for (var p = 0u; p < column_vectors; p++) {
                let column = column_of(own_first, p);
                var first = VectorInputs();
                if in_blocks { first = load_in_row(row_start, own_first, p); }
                for (var k = 0u; k < vector_vec4s; k++) {
                    // Elements past the tensor's end may be NaN, and a shift of NaN would stay in the sums.
                    let inside = inside_row(row_start, own_first, p, k, uniforms.end_column);
                    if !complete { first[k] = select_inputs(Inputs(), first[k], inside); }
                    blocks[p][k] = begin(first[k], coefficients_at(columns[p][k], known, batch, row_start, column));
                }
            }
            // Several rows are loaded before the first is used, so that more loads are under way. All invocations take
            // part in the sums of rows.
            for (var base = start; base < end;) {
                if rows_at_once > 1u && base + rows_at_once * thread_rows <= end {
                    var inputs = array<RowInputs, rows_at_once>();
                    for (var q = 0u; q < rows_at_once; q++) {
                        inputs[q] = load_row(batch, base + thread_row + q * thread_rows, rows.y, own_first);
                    }
                    for (var q = 0u; q < rows_at_once; q++) {
                        let row = base + thread_row;
                        let total = add_row(&blocks, batch, row, rows.y, own_first, inputs[q], &columns);
                        if adds_rows { store_sums_of_row(local, tile, batch, row, rows.y, *half, total); }
                        *half = 1u - *half;
                        base += thread_rows;
                    }
                } else {
                    let row = base + thread_row;
                    var total = Accumulator();
                    if adds_rows || thread_rows == 1u || row < rows.y {
                        let inputs = load_row(batch, row, rows.y, own_first);
                        total = add_row(&blocks, batch, row, rows.y, own_first, inputs, &columns);
                    }
                    if adds_rows { store_sums_of_row(local, tile, batch, row, rows.y, *half, total); }
                    *half = 1u - *half;
                    base += thread_rows;
                }
            }
            for (var p = 0u; p < column_vectors; p++) {
                for (var k = 0u; k < vector_vec4s; k++) {
                    sums[p][k] = end_block(sums[p][k], blocks[p][k]);
                }
            }
            if !in_blocks && !applied { break; }
        }

        for (var p = 0u; p < column_vectors; p++) {
            for (var k = 0u; k < vector_vec4s; k++) {
                let column = own_column(own_first, p) + 4u * k;
                let is_own = column < uniforms.end_column && thread_row == 0u;
                var total = sums[p][k];
                if adds_columns { total = sum_of_thread_rows(local, threads_per_row, total); }
                if applied {
                    if is_own { store_results(column / 4u, total, vec2(0u, 4u), scalars()); }
                    columns[p][k] = with_sums_of_columns(columns[p][k], total);
                } else if direct {
                    if is_own { store_results(column / 4u, total, vec2(0u, min(4u, uniforms.end_column - column)), scalars()); }
                } else {
                    if is_own && adds_columns && !by_channel { store_partials(row_tile, batch, column, total); }
                    sums[p][k] = total;
                }
            }
        }
    }
    if by_channel { store_sums_by_channel(local, row_tile, batch, own_first, &sums); }
    if applied {
        for (var row = rows.x + thread_row; row < rows.y; row += thread_rows) {
            let known = known_of_row(batch, row);
            let row_start = start_of_row(batch, row);
            for (var p = 0u; p < column_vectors; p++) {
                let column = column_of(own_first, p);
                var inputs = load_in_row(row_start, own_first, p);
                var outputs = VectorOutputs();
                for (var k = 0u; k < vector_vec4s; k++) {
                    let own = coefficients_at(columns[p][k], known, batch, row_start, column);
                    let element = element_of(inputs[k], own);
                    // The record of a channel holds its parameters, too.
                    if of_channels && !reduced && !has_means {
                        outputs[k] = result_of_constants(element, own);
                    } else {
                        outputs[k] = result(element, own);
                    }
                }
                if is_in_row(row_start, own_column(own_first, p)) { store_in_row(row_start, own_first, p, outputs); }
            }
        }
    }
}

// A row of a tile. Where sums of rows are taken, invocations past the tile's last row have that one, which counts 0.
fn row_inside(row: u32, end: u32) -> u32 {
    if adds_rows { return min(row, end - 1u); }
    return row;
}

// An invocation's vectors of a row.
fn load_row(batch: u32, row: u32, end: u32, first: u32) -> RowInputs {
    let row_start = start_of_row(batch, row_inside(row, end));
    var inputs: RowInputs;
    for (var p = 0u; p < column_vectors; p++) {
        inputs[p] = load_in_row(row_start, first, p);
    }
    return inputs;
}

// Adds a row to its columns' blocks, and returns the row's own sums. A reduction of channels writes results, too, if
// they are bound.
fn add_row(
    blocks: ptr<function, ColumnBlocks>,
    batch: u32,
    row: u32,
    end: u32,
    first: u32,
    row_inputs: RowInputs,
    columns: ptr<function, Columns>,
) -> Accumulator {
    let known = known_of_row(batch, row_inside(row, end));
    let row_start = start_of_row(batch, row_inside(row, end));
    var inputs = row_inputs;
    var total = Accumulator();
    // A row past the last has no columns.
    var end_column = uniforms.end_column;
    if adds_rows && threads_per_row < workgroup_size { end_column = select(0u, end_column, row < end); }
    for (var p = 0u; p < column_vectors; p++) {
        var outputs = VectorOutputs();
        for (var k = 0u; k < vector_vec4s; k++) {
            let inside = inside_row(row_start, first, p, k, end_column);
            let own = coefficients_at((*columns)[p][k], known, batch, row_start, column_of(first, p));
            let element = element_of(inputs[p][k], own);
            if adds_columns { (*blocks)[p][k] = accumulate_of_column((*blocks)[p][k], element, own, inside); }
            if adds_rows { total = merge(total, terms_of_row(element, own, inside)); }
            if of_channels && !applied { outputs[k] = result_of_constants(element, own); }
        }
        if of_channels && !applied && own_column(first, p) < uniforms.end_column {
            store_in_row(row_start, first, p, outputs);
        }
    }
    return total;
}

// Writes a partial sum of a row. All invocations take part.
fn store_sums_of_row(local: u32, tile: u32, batch: u32, row: u32, end: u32, half: u32, total: Accumulator) {
    let joint = words_of_total(team_sum(local, threads_per_partial, half, horizontal_sum(total)));
    if local % threads_per_partial > 0u || row >= end { return; }
    let number = number_of_row(batch, row);
    if one_partial {
        let record = row_record(row_before_sums(number), accumulator_of(splat(joint)), scalars());
        store_workspace(uniforms.stats + number, record);
        return;
    }
    // All row groups of a sample's column tiles, or of all, have partial sums of their own.
    let group = tile / uniforms.walked_tiles % uniforms.row_groups;
    let to = row_partial(local, group, number);
    var before = real4();
    if !one_tile && tile % uniforms.walked_tiles > 0u { before = load_workspace(to); }
    store_workspace(to, before + joint);
    if of_rows && leaves_records && group == 0u && local % threads_per_row == 0u {
        store_workspace(uniforms.stats + number, row_before_sums(number));
    }
}

// The record of a row whose statistics are its own, before its sums.
fn row_before_sums(number: u32) -> real4 {
    if recorded { return load_workspace(uniforms.stats + number); }
    return record_of_coefficients(statistics_of(number / 4u, uniforms.epsilon), number % 4u);
}
