// A forward pass over columns in one reading, for columns so short that the invocations that share them hold them in
// registers: the statistics of each column of src, then dst by them. Statistics belong to a column of a batch, gamma and
// beta to a row.
//
// A tile is all rows of a batch by `threads_per_row` vectors of columns, as in columns.wgsl; an invocation holds its vector of
// `held_rows` rows.
//
// Bindings: src, residual (optional: 0), gamma (optional: 1, or in the workspace), beta (optional: 0, or in the
// workspace), gate (optional: 1) read; workspace (optional) read; dst, mean, variance (or mean_square) written.
// Moves n elements in (2 n with residual), n out.

#import tiles, body, scalars, vectors, columns, thread_rows_sum

@compute @workgroup_size(workgroup_size)
fn columns_fused(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }
    let batch = batch_of(tile);
    let vector = vector_in_row(tile, local, 0u);
    let thread_row = local / threads_per_row;

    var coefficients: array<Coefficients, vector_vec4s>;
    var sums: array<Accumulator, vector_vec4s>;
    var first = load_vector_inputs(first_vector_of(batch, 0u) + vector);
    for (var k = 0u; k < vector_vec4s; k++) {
        coefficients[k] = begin_row(statistics_of(0u, uniforms.epsilon), first[k]);
        sums[k] = Accumulator();
    }
    // Past the last row, the last one stands in and counts 0.
    var elements: array<array<Element, vector_vec4s>, held_rows>;
    for (var p = 0u; p < held_rows; p++) {
        let row = thread_row + p * (workgroup_size / threads_per_row);
        var inputs = load_vector_inputs(first_vector_of(batch, min(row, uniforms.rows - 1u)) + vector);
        for (var k = 0u; k < vector_vec4s; k++) {
            elements[p][k] = element_of(inputs[k], coefficients[k]);
            sums[k] = merge(sums[k], terms(elements[p][k], coefficients[k], vec4(row < uniforms.rows)));
        }
    }
    for (var k = 0u; k < vector_vec4s; k++) {
        let total = sum_of_thread_rows(local, threads_per_row, sums[k]);
        coefficients[k] = with_sums(coefficients[k], total, scalars());
        for (var reduction = 1u; reduction < row_reductions; reduction++) {
            coefficients[k] = next_reduction(coefficients[k]);
            var again = Accumulator();
            for (var p = 0u; p < held_rows; p++) {
                let inside = vec4(thread_row + p * (workgroup_size / threads_per_row) < uniforms.rows);
                again = merge(again, terms(elements[p][k], coefficients[k], inside));
            }
            let total_again = sum_of_thread_rows(local, threads_per_row, again);
            coefficients[k] = with_sums(coefficients[k], total_again, scalars());
        }
    }

    if own_vector(tile, local, 0u) >= uniforms.width_vectors { return; }
    if thread_row == 0u {
        for (var k = 0u; k < vector_vec4s; k++) {
            store_statistics((batch * uniforms.width_vectors + vector) * vector_vec4s + k, coefficients[k]);
        }
    }
    for (var p = 0u; p < held_rows; p++) {
        let row = thread_row + p * (workgroup_size / threads_per_row);
        if row < uniforms.rows {
            let params = params_of_row(param_of(batch, row));
            var outputs = VectorOutputs();
            for (var k = 0u; k < vector_vec4s; k++) {
                outputs[k] = result(elements[p][k], with_params(coefficients[k], params));
            }
            store_vector_outputs(first_vector_of(batch, row) + vector, outputs);
        }
    }
}
