// The reduction of a gradient over rows: sums of each row and of each column in one reading. For layer norm, with
// d = diff_dst · gamma, a row's sums are Σd and Σ d·x̂, a column's Σ diff_dst and Σ diff_dst · x̂.
//
// `threads_per_partial` neighbouring invocations write a partial sum of a row,
// workspace[row_partials + row · partials_per_row + partial] = (Σd, Σ d·x̂, 0, 0). If they have the whole row
// (`one_partial`), they write the means after its statistics, workspace[stats + row] = (mean, r, Σd / m, Σ d·x̂ / m).
// At the end they write the columns' sums: as partial sums, or, if one workgroup walks all rows, as diff_beta and
// diff_gamma. Where rows do not begin at vec4s, an invocation assembles its four columns from two vec4s.
//
// Bindings: src, diff_dst, parameters (optional, or in the workspace) read; workspace read and written; gradients of
// parameters (optional) written.
// Moves 2 n elements in.

#import tiles, body, records, realigned, vectors, rows, rows_split, column_sums, team_sum, thread_rows_sum

const team_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn rows_reduce(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = tile_at(index, local);
    // Not from `tile`, which differs between invocations: all of them must run the loop over rows alike.
    let row_tile = index / uniforms.column_tiles;
    let rows = rows_of(row_tile);
    var end_row = uniforms.rows;
    if of_samples { end_row = rows.y; }

    var params: array<array<Params, vector_vec4s>, column_vectors>;
    var sums: array<array<Accumulator, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let vec4_index = (tile.vector + p * threads_per_row) * vector_vec4s + k;
            params[p][k] = params_vec4(first_param_of(rows.y - 1u), vec4_index);
            if !complete {
                params[p][k] = select_params(Params(), params[p][k], columns_of(vec4_index, 0u) < vec4(uniforms.columns));
            }
            sums[p][k] = Accumulator();
        }
    }

    let partial = (index % uniforms.column_tiles * threads_per_row + local % threads_per_row) / threads_per_partial;
    var half = 0u; // of the memory of rows' sums
    for (var base = rows.x; base < rows.y; base += uniforms.row_step) {
        // Past the last row, the last one stands in, without columns: all invocations take part in the sums of rows.
        let own = base + local / threads_per_row;
        let row = min(own, end_row - 1u);
        let end = select(0u, uniforms.columns, own < end_row);
        let record = load_workspace(uniforms.stats + row);
        let coefficients = row_coefficients(record);
        let first = first_vector_of(row);
        var total = Accumulator();
        for (var p = 0u; p < column_vectors; p++) {
            let own_vector = tile.vector + p * threads_per_row;
            let vector = vector_in_window(first, own_vector);
            var inputs = load_vector_inputs(vector);
            if !aligned {
                let next = vector_in_window(first, own_vector + 1u);
                inputs[0] = realigned_inputs(inputs[0], load_vector_inputs(next)[0], misalignment_of(row));
            }
            for (var k = 0u; k < vector_vec4s; k++) {
                var inside = vec4(true);
                if !complete || threads_per_row < workgroup_size {
                    inside = columns_of(own_vector * vector_vec4s + k, 0u) < vec4(end);
                }
                let own_coefficients = with_params(coefficients, params[p][k]);
                let own_terms = terms(element_of(inputs[k], own_coefficients), own_coefficients, inside);
                sums[p][k] = merge(sums[p][k], own_terms);
                total = merge(total, weigh(own_terms, own_coefficients));
            }
        }
        let joint = words_of_total(team_sum(local, threads_per_partial, half, horizontal_sum(total)));
        half = 1u - half;
        let counts = (complete || partial < uniforms.partials_per_row) && (threads_per_row == workgroup_size || own < end_row);
        if local % threads_per_partial == 0u && counts {
            if one_partial {
                let scalars = Scalars(0.0, uniforms.inverse_count, 0.0, 0.0);
                store_workspace(uniforms.stats + row, row_record(record, accumulator_of(splat(joint)), scalars));
            } else {
                store_workspace(uniforms.row_partials + row * uniforms.partials_per_row + partial, joint);
            }
        }
    }

    if !summed { return; }
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            let vec4_index = (tile.vector + p * threads_per_row) * vector_vec4s + k;
            let total = sum_of_thread_rows(local, writers(), sums[p][k]);
            if !direct {
                write_columns(local, row_tile, 4u * vec4_index, total);
            } else if local < threads_per_row && 4u * vec4_index < uniforms.columns {
                store_results(vec4_index, total, min(4u, uniforms.columns - 4u * vec4_index), Scalars());
            }
        }
    }
}
