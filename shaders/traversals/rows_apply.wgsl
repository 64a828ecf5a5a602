// The elementwise pass over rows. A gradient writes diff_src, from src, diff_dst and the means of each row's sums. For
// layer norm diff_src = r · ((d − a) − x̂ · b), with d = diff_dst · gamma, a = Σd / m and b = Σ d·x̂ / m.
// A forward pass writes dst, from src, residual and each row's statistics, and with a residual the sum of both.
//
// Tiles are those of rows_reduce.wgsl. A vec4 is stored by the invocation in whose row it begins; where the row ends
// inside it, the elements after its end belong to the next rows.
//
// Bindings: src, diff_dst (for a gradient), residual (optional), parameters (optional, or in the workspace) read;
// workspace read; diff_src written, or diff_dst in place, or dst, sum (with residual) written, at once or one after
// another.
// Moves 2 n elements in, n out; forward n in and n out, or with residual 2 n in and 2 n out.

#import tiles, body, records, params, copied_params, vectors, rows, rows_split

@compute @workgroup_size(workgroup_size)
fn rows_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = tile_at(index, local);

    var params: array<array<Params, vector_vec4s>, column_vectors>;
    for (var p = 0u; p < column_vectors; p++) {
        for (var k = 0u; k < vector_vec4s; k++) {
            if aligned { params[p][k] = params_vec4(first_param_of(tile.end - 1u), (tile.vector + p * threads_per_row) * vector_vec4s + k); }
        }
    }

    for (var row = tile.row; row < tile.end; row += uniforms.row_step) {
        let own = applied_coefficients(row);
        var next = own;
        if !aligned { next = applied_coefficients(min(row + 1u, uniforms.rows - 1u)); }
        let misalignment = misalignment_of(row);
        let first = first_vector_of(row);
        for (var p = 0u; p < column_vectors; p++) {
            let own_vector = tile.vector + p * threads_per_row;
            let vector = vector_in_window(first, own_vector);
            var inputs = load_vector_inputs(vector);
            var outputs = VectorOutputs();
            for (var k = 0u; k < vector_vec4s; k++) {
                let vec4_of_row = own_vector * vector_vec4s + k;
                let columns = columns_of(vec4_of_row, misalignment);
                var own_params = params[p][k];
                if !aligned { own_params = params_of(row, vec4_of_row, misalignment); }
                var value = outputs_of(inputs[k], own, own_params);
                if narrow {
                    // By `select`, as in plane_apply.wgsl.
                    for (var i = 0u; i < 4u; i++) {
                        let other = applied_coefficients(min(row + columns[i] / uniforms.columns, uniforms.rows - 1u));
                        let of_other = outputs_of(inputs[k], other, own_params);
                        value = select_outputs(value, of_other, vec4(i) == vec4(0u, 1u, 2u, 3u));
                    }
                } else if !aligned {
                    let of_next = outputs_of(inputs[k], next, own_params);
                    value = select_outputs(value, of_next, columns >= vec4(uniforms.columns));
                }
                outputs[k] = value;
            }
            if complete || columns_of(own_vector * vector_vec4s, misalignment).x < uniforms.columns {
                if whole {
                    store_vector_outputs(vector, outputs);
                } else {
                    let left = min(vector_elements, uniforms.length - vector * vector_elements);
                    store_first_vector_outputs(vector, outputs, left);
                }
            }
        }
    }
}

fn applied_coefficients(row: u32) -> Coefficients {
    let record = load_workspace(uniforms.stats + row);
    if one_partial { return row_coefficients_with_sums(record); }
    return combine(row_coefficients(record), splat(load_workspace(uniforms.means + row)));
}

fn outputs_of(inputs: Inputs, row: Coefficients, params: Params) -> Outputs {
    let coefficients = with_params(row, params);
    return result(element_of(inputs, coefficients), coefficients);
}

// The parameters of the elements of a row's vec4, where rows do not begin at vec4s. The next row begins at the row's
// end.
fn params_of(row: u32, vec4_index: u32, misalignment: u32) -> Params {
    if !has_params { return neutral_params(); }
    let columns = columns_of(vec4_index, misalignment);
    let first = first_param_of(row);
    var params = params_vec4(first, vec4_index);
    if misalignment > 0u {
        let before = params_vec4(first, max(vec4_index, 1u) - 1u);
        params = realigned_params(before, params, 4u - misalignment);
    }
    if columns.x < uniforms.columns && columns.w >= uniforms.columns {
        for (var i = 0u; i < 4u; i++) {
            let own_row = min(row + columns[i] / uniforms.columns, uniforms.rows - 1u);
            let param = first_param_of(own_row) + columns[i] % uniforms.columns;
            let other = splat_params(given_params(param / 4u), param % 4u);
            params = select_params(params, other, vec4(i) == vec4(0u, 1u, 2u, 3u));
        }
    }
    return params;
}
