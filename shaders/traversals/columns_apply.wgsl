// The elementwise pass over columns. A gradient writes diff_src, from src, diff_dst and the means of each column's
// sums. For layer norm diff_src = r · ((d − a) − x̂ · b), with d = diff_dst · gamma, a = Σd / m and b = Σ d·x̂ / m.
// A forward pass writes dst, from src and each column's statistics.
//
// Tiles are those of columns.wgsl. An invocation keeps the coefficients of its columns in registers and walks the rows
// of a tile.
//
// Bindings: src, diff_dst (for a gradient), gamma (optional: 1, or in the workspace), beta (optional: 0, or in the
// workspace), gate, residual (optional) read; workspace read; diff_src written, or diff_dst in place; or dst written.
// Moves 2 n elements in (n forward), n out.

#import tiles, body, vectors, columns

@compute @workgroup_size(workgroup_size)
fn columns_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }
    let batch = batch_of(tile);

    var coefficients: array<array<Coefficients, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let vec4_index = vector_in_row(tile, local, p) * vector_vec4s + k;
            var own = coefficients_of(records_of_columns(uniforms.stats, batch, vec4_index));
            if batch_statistics { own = combine(own, records_of_columns(uniforms.means, batch, vec4_index)); }
            coefficients[p][k] = own;
        }
    }

    let rows = rows_of(tile);
    for (var row = rows.x + local / threads_per_row; row < rows.y; row += workgroup_size / threads_per_row) {
        let params = params_of_row(param_of(batch, row));
        let first = first_vector_of(batch, row);
        for (var p = 0u; p < column_vectors; p++) {
            let vector = first + vector_in_row(tile, local, p);
            var inputs = load_vector_inputs(vector);
            var outputs = VectorOutputs();
            for (var k = 0u; k < vector_vec4s; k++) {
                let own = with_params(coefficients[p][k], params);
                outputs[k] = result(element_of(inputs[k], own), own);
            }
            if own_vector(tile, local, p) < uniforms.width_vectors { store_vector_outputs(vector, outputs); }
        }
    }
}
