// A gradient or forward pass in one reading, for rows or columns so short that the invocations that share them hold them
// in registers. Statistics belong to rows, and parameters to columns (`of_rows`: layer and RMS norm), or statistics to
// columns of batches, and parameters to rows (norms over channels). For the gradient of layer norm, with d = diff_dst · gamma, diff_src = r · ((d − Σd / m) − x̂ · Σ(d·x̂) / m) in each row. A
// forward pass computes the statistics of src + residual and writes dst by them, and with a residual that sum. The
// statistics that the caller wants are written, too.
//
// A tile is some rows by all vectors of a row, or all rows of a batch by `threads_per_row` vectors. An invocation holds
// `column_vectors` vectors of `held_rows` rows. Compilers keep arrays in registers if they are as long as the loops over
// them; where several rows are held, a vector is one vec4, so that every index is known.
//
// Of rows, it then walks on, `row_step` rows further, and the sums of each column, for layer norm of diff_dst and
// diff_dst · x̂, stay in registers until the walk ends; they are then written as partial sums. All rows of an invocation
// begin at the same position in a vec4, so that an invocation keeps to the same columns and holds their parameters:
// `misalignments` workgroups share a tile of rows, each with its own positions. Rows may be groups of channels, whose
// planes of `inner` elements have parameters of their own (`of_planes`).
//
// Of columns, a row's sums of diff_dst and diff_dst · x̂ are added up over `threads_per_partial` neighbouring invocations
// and written as partial sums.
//
// Bindings of a gradient: src, diff_dst, statistics, parameters (optional) read; workspace (`summed`) written; diff_src
// written, or diff_dst in place.
// Bindings of a forward pass: src, residual (optional), parameters (optional, or in the workspace) read; workspace
// (optional) read, or written where statistics are `kept`; dst, sum (with residual), statistics (`stored`, or of
// columns) written.
// Moves 2 n elements in, n out; forward n in and n out, or with residual 2 n in and 2 n out.

#import tiles, body, scalars, vectors, batches, columns, column_partials, thread_rows_sum
#import columns_aligned if aligned, columns_misaligned if not aligned
#import rows_in_registers if of_rows, columns_in_registers if not of_rows

const in_order: bool = of_rows && !aligned;
const long_rows: bool = false;
const one_tile: bool = true;
const summing_invocations: u32 = 1u + (workgroup_size - 1u) * u32(add_thread_rows);
const thread_rows: u32 = workgroup_size / threads_per_row;
const all_rows_inside: bool = thread_rows * held_rows == 1u;

// A workgroup's tile.
struct Tile {
    batch: u32,
    rows: vec2<u32>, // the first, and the end
    column_tile: u32,
    partial: u32, // the number of its sums of columns among those of the batch
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
    let batch = tile.batch;
    let rows = tile.rows;
    let own_first = first_column_of(tile.column_tile, local);
    let thread_row = local / threads_per_row;
    // The number of elements before a row in its first vec4.
    var misalignment = 0u;
    if in_order { misalignment = start_of_row(batch, rows.x + thread_row) % 4u; }

    var params: array<array<Params, vector_vec4s>, column_vectors>;
    var sums: ColumnSums;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            params[p][k] = held_params(batch, own_column(own_first, p) + 4u * k - misalignment);
            sums[p][k] = Accumulator();
        }
    }

    var half = 0u; // of the memory of rows' sums
    var elements: array<array<array<Element, vector_vec4s>, column_vectors>, held_rows>;
    for (var first = rows.x; first < rows.y; first += uniforms.row_step) {
        // Past the last row, the last one stands in and counts 0, since all invocations must reach the barriers.
        var coefficients = begin_tile(batch, min(first + thread_row, rows.y - 1u), own_first, misalignment);
        var total = Accumulator();
        for (var q = 0u; q < held_rows; q++) {
            let row = first + thread_row + q * thread_rows;
            let row_inside = min(row, rows.y - 1u);
            let row_start = start_of_row(batch, row_inside);
            for (var p = 0u; p < column_vectors; p++) {
                var inputs = load_in_row(row_start, own_first, p);
                for (var k = 0u; k < vector_vec4s; k++) {
                    let own = with_params(coefficients, params_in_row(params[p][k], batch, row_inside, own_column(own_first, p) + 4u * k));
                    elements[q][p][k] = element_of(inputs[k], own);
                    let inside = inside_tile(misalignment, own_first, p, k, all_rows_inside || row < rows.y);
                    let own_terms = terms(elements[q][p][k], own, inside);
                    total = merge(total, weigh(own_terms, own));
                    if summed && of_rows { sums[p][k] = merge(sums[p][k], own_terms); }
                }
            }
        }
        coefficients = with_sums(coefficients, sum_of_tile(local, half, total), scalars());
        half = 1u - half;
        for (var reduction = 1u; reduction < row_reductions; reduction++) {
            coefficients = next_reduction(coefficients);
            total = Accumulator();
            for (var q = 0u; q < held_rows; q++) {
                let row = first + thread_row + q * thread_rows;
                let row_inside = min(row, rows.y - 1u);
                for (var p = 0u; p < column_vectors; p++) {
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let own = with_params(coefficients, params_in_row(params[p][k], batch, row_inside, own_column(own_first, p) + 4u * k));
                        let inside = inside_tile(misalignment, own_first, p, k, all_rows_inside || row < rows.y);
                        total = merge(total, weigh(terms(elements[q][p][k], own, inside), own));
                    }
                }
            }
            coefficients = with_sums(coefficients, sum_of_tile(local, half, total), scalars());
            half = 1u - half;
        }
        if summed && !of_rows {
            for (var q = 0u; q < held_rows; q++) {
                let row = first + thread_row + q * thread_rows;
                var own_sums = Accumulator();
                for (var p = 0u; p < column_vectors; p++) {
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let inside = inside_row_of_tile(own_first, p, all_rows_inside || row < rows.y);
                        own_sums = merge(own_sums, terms(elements[q][p][k], coefficients, inside));
                    }
                }
                store_sums_of_row(local, tile.column_tile, batch, row, rows.y, half, own_sums);
                half = 1u - half;
            }
        }
        store_statistics_of_tile(local, batch, first + thread_row, rows.y, own_first, coefficients);
        for (var q = 0u; q < held_rows; q++) {
            let row = first + thread_row + q * thread_rows;
            if all_rows_inside || row < rows.y {
                let row_start = start_of_row(batch, row);
                for (var p = 0u; p < column_vectors; p++) {
                    var outputs = VectorOutputs();
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let own = with_params(coefficients, params_in_row(params[p][k], batch, row, own_column(own_first, p) + 4u * k));
                        outputs[k] = result(elements[q][p][k], own);
                    }
                    if is_in_row(misalignment, own_column(own_first, p)) {
                        store_in_row(row_start, own_first, p, outputs);
                    }
                }
            }
        }
        // One tile has all rows of a batch.
        if !of_rows { break; }
    }

    if !summed || !of_rows { return; }
    // Invocations `apart` from each other have the same columns.
    var apart = workgroup_size;
    if add_thread_rows { apart = min(threads_per_row * (1u + 3u * u32(in_order)), workgroup_size); }
    let partial = tile.partial * (apart / threads_per_row) + thread_row;
    for (var p = 0u; p < column_vectors; p++) {
        let column = own_column(own_first, p);
        for (var k = 0u; k < vector_vec4s; k++) {
            let total = sum_of_thread_rows(local, apart, sums[p][k]);
            if local < apart && is_in_row(misalignment, column) {
                store_partials(partial, batch, column + 4u * k - misalignment, total);
            }
        }
    }
}
