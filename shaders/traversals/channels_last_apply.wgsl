// The elementwise pass, channels last. A gradient writes diff_src, from src, diff_dst and the means of the sums that
// finish.wgsl wrote. For batch norm diff_src = r · ((gamma · diff_dst − a) − x̂ · b), with a = gamma · Σ diff_dst / m
// and b = gamma · Σ diff_dst · x̂ / m. With constant statistics a and b are 0, and src is bound only for an activation.
// A forward pass writes dst, from src and the record that finish.wgsl or pack_statistics.wgsl wrote for each channel.
//
// Rows, columns and, with `general` axes, batches are those of channels_last_reduce.wgsl. An invocation owns some
// vectors of columns, keeps their coefficients in registers and walks the rows of a tile.
//
// Bindings: src (for a gradient by batch statistics or with an activation, and for a forward pass), diff_dst and mask
// (for a gradient), residual (for a forward pass) read; workspace read; diff_src written, or diff_dst in place, and
// with a mask diff_residual; or dst written.
// Moves 2 n elements in (n with constant statistics, or forward), n out; n more in for a residual; n / 32 words in and
// n more out for a mask.

#import tiles, threads, body, records, vectors, channels_last

@compute @workgroup_size(workgroup_size)
fn channels_last_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread_rows = team_of(workgroup_size, uniforms.threads_per_row);
    let thread_row = team_of(local, uniforms.threads_per_row);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
    let row_tile = tile / uniforms.column_tiles % uniforms.row_tiles;
    let first = first_column(tile, thread_of(local, uniforms.threads_per_row));

    var coefficients: array<array<Coefficients, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        var position = position_of(column_of(first, p));
        for (var k = 0u; k < vector_vec4s; k++) {
            let channels = channels_of(batch, &position);
            var own = coefficients_of(load_records(vec4(uniforms.stats) + channels));
            if batch_statistics { own = combine(own, load_records(vec4(uniforms.means) + channels)); }
            coefficients[p][k] = own;
        }
    }

    let row_end = min(uniforms.rows, (row_tile + 1u) * uniforms.tile_rows);
    for (var row = row_tile * uniforms.tile_rows + thread_row; row < row_end; row += thread_rows) {
        let row_start = row_start_of(batch, row);
        for (var p = 0u; p < column_vectors; p++) {
            let vector = vector_of(row_start, first, p);
            var inputs = load_vector_inputs(vector);
            var outputs = VectorOutputs();
            for (var k = 0u; k < vector_vec4s; k++) {
                let element = element_of(inputs[k], coefficients[p][k]);
                if batch_statistics {
                    outputs[k] = result(element, coefficients[p][k]);
                } else {
                    outputs[k] = result_of_constants(element, coefficients[p][k]);
                }
            }
            store_in_row(row_start, first, p, outputs);
        }
    }
}
