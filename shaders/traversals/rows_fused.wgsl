// The whole gradient or forward pass over rows in one reading, for rows so short that the invocations that share a row
// hold it in registers. For the gradient of layer norm, with d = diff_dst · gamma,
// diff_src = r · ((d − Σd / m) − x̂ · Σ(d·x̂) / m) in each row. A forward pass computes the statistics of
// src + residual and writes dst by them, and with a residual that sum. Statistics that the caller wants are `stored`
// here; where elements of 16 bits share words, the records from which finish.wgsl computes them are `kept` in
// workspace[stats + row].
//
// An invocation walks some rows. The sums of each column, for layer norm of diff_dst and diff_dst · x̂, stay in
// registers until the walk ends and are then written as partial sums. A vec4 that two rows share is read for both, and
// each row's words of it are stored separately; of a word that two rows share (`shares_words`), each row's half is.
// Where each sample has parameters of its own (`of_samples`), the rows of a tile belong to one sample.
//
// Bindings of a gradient: src, diff_dst, statistics, parameters (optional) read; workspace written; diff_src written, or
// diff_dst in place.
// Bindings of a forward pass: src, residual (optional), parameters (optional) read; workspace (optional), dst, sum (with
// residual), statistics (`stored`) written.
// Moves 2 n elements in, n out; forward n in and n out, or with residual 2 n in and 2 n out.

#import tiles, body, records, scalars, vectors, rows, column_sums, team_sum, thread_rows_sum
#import rows_aligned if aligned, rows_misaligned if not aligned

const team_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn rows_fused(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let thread = local % threads_per_row;
    let row_vectors = uniforms.row_vec4s / vector_vec4s;
    let rows = rows_of(tile);
    var end_row = uniforms.rows;
    if of_samples { end_row = rows.y; }
    let misalignment = misalignment_of(rows.x + local / threads_per_row);

    var params: array<array<Params, vector_vec4s>, column_vectors>;
    var sums: array<array<Accumulator, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            params[p][k] = params_of(first_param_of(rows.y - 1u), (thread + p * threads_per_row) * vector_vec4s + k, misalignment);
            sums[p][k] = Accumulator();
        }
    }

    var half = 0u; // of the memory of rows' sums
    var elements: array<array<Element, vector_vec4s>, column_vectors>;
    for (var first = rows.x; first < rows.y; first += uniforms.row_step) {
        // Past the last row, the last one stands in and counts 0, since all invocations must reach the barriers.
        let own = first + local / threads_per_row;
        let row = min(own, end_row - 1u);
        let end = select(0u, uniforms.columns, own < end_row);
        var coefficients = coefficients_of(splat(record_of_coefficients(statistics_of(row / 4u, uniforms.epsilon), row % 4u)));
        let row_start = first_vector_of(row);
        coefficients = begin_row(coefficients, splat_inputs(load_vector_inputs(row_start)[0], misalignment));
        var total = Accumulator();
        for (var p = 0u; p < column_vectors; p++) {
            let column = thread + p * threads_per_row;
            var vector = row_start + min(column, row_vectors - 1u);
            if !aligned { vector = min(vector, uniforms.last_vector); }
            var inputs = load_vector_inputs(vector);
            for (var k = 0u; k < vector_vec4s; k++) {
                let own_coefficients = with_params(coefficients, params[p][k]);
                let element = element_of(inputs[k], own_coefficients);
                elements[p][k] = element;
                let inside = inside_row(column, row_vectors, misalignment, end);
                let own_terms = terms(element, own_coefficients, inside);
                if summed {
                    // Where rows are not aligned, `inside` has already left out rows past the last.
                    var counted = own_terms;
                    if aligned && threads_per_row < workgroup_size {
                        counted = terms(element, own_coefficients, inside & vec4(own < end_row));
                    }
                    sums[p][k] = merge(sums[p][k], counted);
                }
                total = merge(total, weigh(own_terms, own_coefficients));
            }
        }
        var joint = words_of_total(team_sum(local, threads_per_row, half, horizontal_sum(total)));
        half = 1u - half;
        coefficients = with_sums(coefficients, accumulator_of(splat(joint)), scalars());
        for (var reduction = 1u; reduction < row_reductions; reduction++) {
            coefficients = next_reduction(coefficients);
            total = Accumulator();
            for (var p = 0u; p < column_vectors; p++) {
                let inside = inside_row(thread + p * threads_per_row, row_vectors, misalignment, end);
                for (var k = 0u; k < vector_vec4s; k++) {
                    let own_coefficients = with_params(coefficients, params[p][k]);
                    total = merge(total, weigh(terms(elements[p][k], own_coefficients, inside), own_coefficients));
                }
            }
            joint = words_of_total(team_sum(local, threads_per_row, half, horizontal_sum(total)));
            half = 1u - half;
            coefficients = with_sums(coefficients, accumulator_of(splat(joint)), scalars());
        }
        if kept && thread == 0u && own < end_row {
            store_workspace(uniforms.stats + row, record_of_row(coefficients, real(uniforms.columns)));
        }
        if stored && thread == 0u && own < end_row { store_row(row, coefficients, 0u); }
        for (var p = 0u; p < column_vectors; p++) {
            let column = thread + p * threads_per_row;
            var outputs = VectorOutputs();
            for (var k = 0u; k < vector_vec4s; k++) {
                outputs[k] = result(elements[p][k], with_params(coefficients, params[p][k]));
            }
            if (complete || column < row_vectors) && (threads_per_row == workgroup_size || own < end_row) {
                store_in_row(row_start + column, outputs, columns_of(column, misalignment), end);
            }
        }
    }

    if !summed { return; }
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let column = columns_of((thread + p * threads_per_row) * vector_vec4s + k, misalignment).x;
            write_columns(local, tile, column, sum_of_thread_rows(local, writers(), sums[p][k]));
        }
    }
}

// Says which of a vec4's elements are in the row. Where rows are aligned, it does not leave out rows past the last.
fn inside_row(column: u32, row_vectors: u32, misalignment: u32, end: u32) -> vec4<bool> {
    if !aligned { return columns_of(column, misalignment) < vec4(end); }
    if !complete { return vec4(column < row_vectors); }
    return vec4(true);
}
