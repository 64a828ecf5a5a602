// The elementwise pass over columns. A gradient writes diff_src, from src, diff_dst and the means of each column's
// sums. For layer norm diff_src = r · ((d − a) − x̂ · b), with d = diff_dst · gamma, a = Σd / m and b = Σ d·x̂ / m.
// A forward pass writes dst, from src and each column's statistics.
//
// Tiles are those of columns.wgsl. An invocation keeps the coefficients of its columns in registers and walks the rows
// of a tile.
//
// Bindings: src, diff_dst (for a gradient), mean, variance, or mean_square (unless `recorded` in the workspace), gamma
// (optional: 1, or in the workspace), beta (optional: 0, or in the workspace), gate, residual (optional) read; workspace
// (optional) read; diff_src written, or diff_dst in place; or dst written.
// Moves 2 n elements in (n forward), n out.

#import tiles, body, vectors, columns

@compute @workgroup_size(workgroup_size)
fn columns_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = column_tiles_of(index).x;
    let batch = batch_of(tile);

    var coefficients: array<array<Coefficients, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let column = column_of(tile, local, p) + 4u * k;
            if recorded {
                coefficients[p][k] = coefficients_of(records_of_columns(uniforms.stats, batch, column));
            } else {
                coefficients[p][k] = statistics_at(batch, column);
            }
            if batch_statistics {
                coefficients[p][k] = combine(coefficients[p][k], records_of_columns(uniforms.means, batch, column));
            }
        }
    }

    let rows = rows_of(row_tile_of(index));
    for (var row = rows.x + local / threads_per_row; row < rows.y; row += workgroup_size / threads_per_row) {
        let params = params_of_row(param_of(batch, row));
        let row_start = start_of_row(batch, row);
        for (var p = 0u; p < column_vectors; p++) {
            let column = column_of(tile, local, p);
            var inputs = load_in_row(row_start, column);
            var outputs = VectorOutputs();
            for (var k = 0u; k < vector_vec4s; k++) {
                let own = with_params(coefficients[p][k], params);
                outputs[k] = result(element_of(inputs[k], own), own);
            }
            if own_column(tile, local, p) < uniforms.end_column { store_in_row(row_start, column, outputs); }
        }
    }
}
