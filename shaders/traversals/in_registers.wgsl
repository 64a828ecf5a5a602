// A gradient or forward pass in one reading, for rows or columns so short that the invocations that share them hold
// them in registers. Statistics belong to rows, and parameters to columns (`of_rows`: layer and RMS norm), or
// statistics to columns of batches, and parameters to rows (norms over channels). For the gradient of layer norm,
// with d = diff_dst · gamma, diff_src = r · ((d − Σd / m) − x̂ · Σ(d·x̂) / m) in each row. A forward pass computes
// the statistics of src + residual and writes dst by them, and with a residual that sum. The statistics that the
// caller wants are written, too.
//
// A tile is some rows by all vectors of a row, or all rows of a batch by `threads_per_row` vectors. An invocation holds
// `column_vectors` vectors of `held_rows` rows. Compilers keep arrays in registers if they are as long as the loops
// over them; where several rows are held, a vector is one vec4, so that every index is known.
//
// Of rows, it then walks on, `row_step` rows further, and the sums of each column, for layer norm of diff_dst and
// diff_dst · x̂, stay in registers until the walk ends; they are then written as partial sums. All rows of an
// invocation begin at the same position in a vec4, so that an invocation keeps to the same columns and holds their
// parameters: `misalignments` workgroups share a tile of rows, each with its own positions. Rows may be groups of
// channels, whose planes of `inner` elements have parameters of their own (`of_planes`).
//
// Of columns, it walks on to the next column tiles. A row's sums of diff_dst and diff_dst · x̂ stay in registers until
// the walk ends; then `threads_per_partial` neighbouring invocations add theirs up and write a partial sum.
//
// Bindings of a gradient: src, diff_dst, statistics, parameters (optional) read; workspace (`summed`, `kept`) written;
// diff_src written, or diff_dst in place.
// Bindings of a forward pass: src, residual (optional), parameters (optional, or in the workspace) read; workspace
// (optional) read, or written where statistics are `kept`; dst, sum (with residual), statistics (`stored`, or of
// columns) written.
// Moves 2 n elements in, n out; forward n in and n out, or with residual 2 n in and 2 n out.

#import tiles, body, scalars, vectors, batches, columns, column_partials, thread_rows_sum
#import columns_aligned if aligned, columns_misaligned if not aligned
#import rows_in_registers if of_rows, columns_in_registers if not of_rows

const in_order: bool = of_rows && !aligned;
const long_rows: bool = false;
const summing_invocations: u32 = 1u + (workgroup_size - 1u) * u32(add_thread_rows);
const thread_rows: u32 = workgroup_size / threads_per_row;
const all_rows_inside: bool = thread_rows * held_rows == 1u;

// A workgroup's tile: the steps of its walk are rows of a batch, or column tiles.
struct Tile {
    batch: u32,
    steps: vec2<u32>, // the first, and the end
    partial: u32, // the number of its sums of columns among those of the batch
}

// A step: rows of a batch from one on, up to an end, or all rows of a column tile.
struct Step {
    batch: u32,
    row: u32,
    end: u32,
    column_tile: u32,
}

@compute @workgroup_size(workgroup_size)
fn in_registers(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    // Compilers for the web trace what all invocations have in common by whole structs: `local` stays out of this one.
    let tile = tile_at(index);
    // A tile without rows leaves partial sums, which are 0.
    if !of_rows && tile.steps.x >= tile.steps.y { return; }
    var own_first = first_column_of(uniforms.first_column_tile, local);
    let thread_row = local / threads_per_row;
    // The number of elements before a row in its first vec4.
    var misalignment = 0u;
    if in_order { misalignment = start_of_row(tile.batch, tile.steps.x + thread_row) % 4u; }

    var params: array<array<Params, vector_vec4s>, column_vectors>;
    var sums: ColumnSums;
    var row_sums: array<Total, held_rows>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            params[p][k] = held_params(tile.batch, own_column(own_first, p) + 4u * k - misalignment);
            sums[p][k] = Accumulator();
        }
    }

    var half = 0u; // of the memory of rows' sums
    var elements: array<array<array<Element, vector_vec4s>, column_vectors>, held_rows>;
    for (var at = tile.steps.x; at < tile.steps.y; at += uniforms.row_step) {
        let step = step_at(tile, at);
        let batch = step.batch;
        if !of_rows { own_first = first_column_of(step.column_tile, local); }
        // Past the last row, the last one stands in and counts 0, since all invocations must reach the barriers.
        let first = step.row + thread_row;
        let first_inside = min(first, step.end - 1u);
        var coefficients = begin_tile(batch, first_inside, own_first, misalignment);
        var total = Accumulator();
        for (var q = 0u; q < held_rows; q++) {
            let row = first + q * thread_rows;
            let row_inside = min(row, step.end - 1u);
            let row_start = start_of_row(batch, row_inside);
            for (var p = 0u; p < column_vectors; p++) {
                var inputs = load_in_row(row_start, own_first, p);
                for (var k = 0u; k < vector_vec4s; k++) {
                    let column = own_column(own_first, p) + 4u * k - misalignment;
                    let own_params = params_in_row(params[p][k], batch, row_inside, column);
                    let own = with_params(coefficients, own_params);
                    elements[q][p][k] = element_of(inputs[k], own);
                    let inside = inside_tile(misalignment, own_first, p, k, all_rows_inside || row < step.end);
                    let own_terms = terms(elements[q][p][k], own, inside);
                    total = merge(total, weighed(own_terms, own));
                    if summed && of_rows { sums[p][k] = merge(sums[p][k], own_terms); }
                }
            }
        }
        var joint = sum_of_tile(local, half, total);
        coefficients = with_sums(coefficients, weighed_total(joint, batch, first_inside, coefficients), scalars());
        half = 1u - half;
        for (var reduction = 1u; reduction < row_reductions; reduction++) {
            coefficients = next_reduction(coefficients);
            total = Accumulator();
            for (var q = 0u; q < held_rows; q++) {
                let row = first + q * thread_rows;
                for (var p = 0u; p < column_vectors; p++) {
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let column = own_column(own_first, p) + 4u * k - misalignment;
                        let own_params = params_in_row(params[p][k], batch, min(row, step.end - 1u), column);
                        let own = with_params(coefficients, own_params);
                        let inside = inside_tile(misalignment, own_first, p, k, all_rows_inside || row < step.end);
                        total = merge(total, weighed(terms(elements[q][p][k], own, inside), own));
                    }
                }
            }
            joint = sum_of_tile(local, half, total);
            coefficients = with_sums(coefficients, weighed_total(joint, batch, first_inside, coefficients), scalars());
            half = 1u - half;
        }
        if summed && !of_rows {
            for (var q = 0u; q < held_rows; q++) {
                let is_row = all_rows_inside || first + q * thread_rows < step.end;
                var own_sums = Accumulator();
                for (var p = 0u; p < column_vectors; p++) {
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let inside = inside_row_of_tile(own_first, p, is_row);
                        own_sums = merge(own_sums, terms(elements[q][p][k], coefficients, inside));
                    }
                }
                row_sums[q] = merge_totals(row_sums[q], horizontal_sum(own_sums));
            }
        }
        store_statistics_of_tile(local, batch, first, step.end, own_first, coefficients, joint);
        for (var q = 0u; q < held_rows; q++) {
            let row = first + q * thread_rows;
            if all_rows_inside || row < step.end {
                let row_start = start_of_row(batch, row);
                for (var p = 0u; p < column_vectors; p++) {
                    var outputs = VectorOutputs();
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let column = own_column(own_first, p) + 4u * k - misalignment;
                        let own_params = params_in_row(params[p][k], batch, row, column);
                        outputs[k] = result(elements[q][p][k], with_params(coefficients, own_params));
                    }
                    if is_in_row(misalignment, own_column(own_first, p)) {
                        store_in_row(row_start, own_first, p, outputs);
                    }
                }
            }
        }
        if one_tile && !of_rows { break; }
    }

    if !summed { return; }
    if !of_rows {
        for (var q = 0u; q < held_rows; q++) {
            store_sums_of_row(local, tile.steps.x, thread_row + q * thread_rows, half, row_sums[q]);
            half = 1u - half;
        }
        return;
    }
    // Invocations `apart` from each other have the same columns.
    var apart = workgroup_size;
    if add_thread_rows { apart = min(threads_per_row * (1u + 3u * u32(in_order)), workgroup_size); }
    let partial = tile.partial * (apart / threads_per_row) + thread_row;
    for (var p = 0u; p < column_vectors; p++) {
        let column = own_column(own_first, p);
        for (var k = 0u; k < vector_vec4s; k++) {
            let total = sum_of_thread_rows(local, apart, sums[p][k]);
            if local < apart && is_in_row(misalignment, column) {
                store_partials(partial, tile.batch, column + 4u * k - misalignment, total);
            }
        }
    }
}
