// A forward pass over columns in one reading, for columns so short that the invocations that share them hold them in
// registers: the statistics of each column of src, then dst by them. Statistics belong to a column of a batch, gamma
// and beta to a row.
//
// A tile is all rows of a batch by `threads_per_row` vec4s of columns, as in columns.wgsl; an invocation holds its vec4
// of `held_rows` rows. A vector is one vec4 here, so that compilers know every index into what an invocation holds.
//
// Bindings: src, residual (optional), parameters (optional, or in the workspace) read; workspace (optional) read; dst,
// statistics written.
// Moves n elements in (2 n with residual), n out.

#import tiles, body, scalars, vectors, batches, columns, columns_of_batches, thread_rows_sum
#import columns_aligned if aligned, columns_misaligned if not aligned

const one_tile: bool = true;
const add_thread_rows: bool = threads_per_row < workgroup_size;
const summing_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn columns_fused(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = column_tiles_of(index).x;
    let batch = batch_of(tile);
    let own_first = first_column_of(tile, local);
    let column = column_of(own_first, 0u);
    let thread_row = local / threads_per_row;

    let params = params_of_row(number_of_row(batch, 0u));
    var coefficients = with_params_of_row(Coefficients(), params);
    coefficients = begin_row(coefficients, load_in_row(start_of_row(batch, 0u), column)[0]);
    // Past the last row, the last one stands in and counts 0.
    var elements: array<Element, held_rows>;
    var sum = Accumulator();
    for (var p = 0u; p < held_rows; p++) {
        let row = thread_row + p * (workgroup_size / threads_per_row);
        let row_inside = min(row, uniforms.rows - 1u);
        let own = with_params_of_row(coefficients, params_of_row(number_of_row(batch, row_inside)));
        elements[p] = element_of(load_in_row(start_of_row(batch, row_inside), column)[0], own);
        sum = merge(sum, terms(elements[p], coefficients, vec4(row < uniforms.rows)));
    }
    coefficients = with_sums(coefficients, sum_of_thread_rows(local, threads_per_row, sum), scalars());
    for (var reduction = 1u; reduction < row_reductions; reduction++) {
        coefficients = next_reduction(coefficients);
        sum = Accumulator();
        for (var p = 0u; p < held_rows; p++) {
            let inside = vec4(thread_row + p * (workgroup_size / threads_per_row) < uniforms.rows);
            sum = merge(sum, terms(elements[p], coefficients, inside));
        }
        coefficients = with_sums(coefficients, sum_of_thread_rows(local, threads_per_row, sum), scalars());
    }

    if own_column(own_first, 0u) >= uniforms.end_column { return; }
    if thread_row == 0u { store_statistics_at(batch, column, coefficients); }
    for (var p = 0u; p < held_rows; p++) {
        let row = thread_row + p * (workgroup_size / threads_per_row);
        if row < uniforms.rows {
            let params = params_of_row(number_of_row(batch, row));
            var outputs = VectorOutputs();
            outputs[0] = result(elements[p], with_params_of_row(coefficients, params));
            store_in_row(start_of_row(batch, row), column, outputs);
        }
    }
}
