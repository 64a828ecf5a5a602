// The reduction of a gradient over columns: sums of each column, weighted with the rows' gamma, and of each row in one
// reading. For layer norm, with d = diff_dst · gamma, a column's sums are Σd and Σ d·x̂, a row's Σ diff_dst and
// Σ diff_dst · x̂.
//
// A tile leaves partial sums of its columns, two columns to a record, and `threads_per_partial` neighbouring
// invocations leave one of a row: workspace[row_partials + parameter · partials_per_row + partial] = (Σ, Σ·x̂, 0, 0).
// Where rows share parameters, the partial sums of one are those of all batches.
//
// Bindings: src, diff_dst, gamma (optional: 1, or in the workspace), beta (with an activation), gate (optional)
// read; workspace read and written.
// Moves 2 n elements in.

#import tiles, body, vectors, columns, column_sums
#import row_sum_subgroup if subgroups, row_sum_workgroup if not subgroups

@compute @workgroup_size(workgroup_size)
fn columns_reduce(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }
    let batch = batch_of(tile);

    var coefficients: array<array<Coefficients, vector_vec4s>, column_vectors>;
    var sums: array<array<Accumulator, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let vec4_index = vector_in_row(tile, local, p) * vector_vec4s + k;
            coefficients[p][k] = coefficients_of(records_of_columns(uniforms.stats, batch, vec4_index));
            sums[p][k] = Accumulator();
        }
    }

    // The partial sums of a row: of each column tile, and where batches share the row's parameters, of each batch.
    var partial = tile % uniforms.column_tiles;
    if !of_samples { partial += batch * uniforms.column_tiles; }
    partial = (partial * threads_per_row + local % threads_per_row) / threads_per_partial;
    let rows = rows_of(tile);
    for (var base = rows.x; base < rows.y; base += workgroup_size / threads_per_row) {
        // Past the last row, the last one stands in and counts 0: all invocations take part in the sums of rows.
        let own = base + local / threads_per_row;
        let row = min(own, rows.y - 1u);
        let param = param_of(batch, row);
        let params = params_of_row(param);
        let first = first_vector_of(batch, row);
        var total = Accumulator();
        for (var p = 0u; p < column_vectors; p++) {
            var inputs = load_vector_inputs(first + vector_in_row(tile, local, p));
            let inside = vec4(own < rows.y && own_vector(tile, local, p) < uniforms.width_vectors);
            for (var k = 0u; k < vector_vec4s; k++) {
                let own_coefficients = with_params(coefficients[p][k], params);
                let own_terms = terms(element_of(inputs[k], own_coefficients), own_coefficients, inside);
                sums[p][k] = merge(sums[p][k], weigh(own_terms, own_coefficients));
                total = merge(total, own_terms);
            }
        }
        if summed {
            let joint = words_of_total(row_sum(local, threads_per_partial, total));
            if local % threads_per_partial == 0u && own < rows.y {
                store_workspace(uniforms.row_partials + param * uniforms.partials_per_row + partial, joint);
            }
        }
    }

    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let total = sums_of_columns(local, sums[p][k]);
            let vector = own_vector(tile, local, p);
            let column = (batch * uniforms.width_vectors + vector) * vector_elements + 4u * k;
            if vector < uniforms.width_vectors { write_columns(local, row_tile_of(tile), column, total); }
        }
    }
}
