// A walk over columns: it takes their sums (`reduced`), or writes the result of each element (`applied`), or both.
//
// A gradient's sums are those of each column, weighted with the rows' gamma, and of each row. For layer norm, with
// d = diff_dst · gamma, a column's sums are Σd and Σ d·x̂, a row's Σ diff_dst and Σ diff_dst · x̂. A forward pass takes
// the statistics of each column. The results are diff_src = r · ((d − a) − x̂ · b), with a = Σd / m and b = Σ d·x̂ / m,
// or dst.
//
// Reduced, a workgroup leaves partial sums of its columns: those of statistic s are record s of the region
// workspace[partials + row tile · partial_stride], or where two columns share a record (`paired_columns`), half of
// record s / 2. Applied, an invocation has the coefficients of its columns from the workspace (`recorded`), with a
// gradient's means (`batch_statistics`), or from the tensors of statistics. For both at once a tile has all rows, so
// that the sums are complete: then the workgroup writes the statistics of a forward pass and reads its columns again.
// `threads_per_partial` neighbouring invocations leave a partial sum of a row: workspace[row_partials + parameter ·
// partials_per_row + partial] = (Σ, Σ·x̂, 0, 0). Where rows share parameters, the partial sums of one are those of all
// batches. A workgroup that walks several column tiles adds their sums up.
//
// Bindings: src, diff_dst (for a gradient), residual (applied, optional), parameters (optional, or in the workspace)
// read; statistics (unless in the workspace) read, or written by a forward pass that is reduced and applied; workspace
// (optional) read and written; diff_src written, or diff_dst in place, or dst written (applied).
// Moves 2 n elements in (n forward), and n out if applied; reduced and applied 2 n (n forward) more in, unless the
// second reading is cached.

#import tiles, body, scalars, vectors, columns, column_sums, paired_sums, team_sum, thread_rows_sum

@compute @workgroup_size(workgroup_size)
fn columns_walk(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let row_tile = row_tile_of(index);
    let rows = rows_of(row_tile);
    let thread_rows = workgroup_size / threads_per_row;
    let thread_row = local / threads_per_row;
    let tiles = column_tiles_of(index);
    var coefficients: array<array<Coefficients, vector_vec4s>, column_vectors>;
    var sums: array<array<Accumulator, vector_vec4s>, column_vectors>;
    var blocks: array<array<Block, vector_vec4s>, column_vectors>;
    var half = 0u; // of the memory of rows' sums
    for (var tile = tiles.x; tile < tiles.y; tile++) {
        let batch = batch_of(tile);
        let own_first = first_column_of(tile, local);
        for (var p = 0u; p < column_vectors; p++) {
            for (var k = 0u; k < vector_vec4s; k++) {
                let column = column_of(own_first, p) + 4u * k;
                if recorded {
                    coefficients[p][k] = coefficients_of(records_of_columns(uniforms.stats, batch, column));
                } else {
                    coefficients[p][k] = statistics_at(batch, column);
                }
                if batch_statistics {
                    coefficients[p][k] = combine(coefficients[p][k], records_of_columns(uniforms.means, batch, column));
                }
                sums[p][k] = Accumulator();
            }
        }

        if reduced {
            // All row groups of a sample's column tiles, or of all, have partial sums of their own.
            let group = tile / uniforms.walked_tiles % uniforms.row_groups;
            let partial = (group * threads_per_row + local % threads_per_row) / threads_per_partial;
            // In blocks, so that rounding errors of equal terms do not pile up; a short walk is one block.
            var block_rows_walked = uniforms.tile_rows;
            if in_blocks || applied { block_rows_walked = block_rows * thread_rows; }
            for (var start = rows.x; start < rows.y; start += block_rows_walked) {
                let end = min(rows.y, start + block_rows_walked);
                for (var p = 0u; p < column_vectors; p++) {
                    var first = VectorInputs();
                    if in_blocks {
                        let row_start = start_of_row(batch, min(start + thread_row, rows.y - 1u));
                        first = load_in_row(row_start, column_of(own_first, p));
                    }
                    for (var k = 0u; k < vector_vec4s; k++) {
                        blocks[p][k] = begin(first[k], coefficients[p][k]);
                    }
                }
                for (var base = start; base < end; base += rows_at_once * thread_rows) {
                    // Several rows are loaded before the first is used, so that more loads are under way. Past the last
                    // row, that one stands in and counts 0.
                    var inputs = array<array<VectorInputs, column_vectors>, rows_at_once>();
                    for (var q = 0u; q < rows_at_once; q++) {
                        let row_start = start_of_row(batch, min(base + q * thread_rows + thread_row, rows.y - 1u));
                        for (var p = 0u; p < column_vectors; p++) {
                            inputs[q][p] = load_in_row(row_start, column_of(own_first, p));
                        }
                    }
                    for (var q = 0u; q < rows_at_once; q++) {
                        let own = base + q * thread_rows + thread_row;
                        let param = param_of(batch, min(own, rows.y - 1u));
                        let params = params_of_row(param);
                        var total = Accumulator();
                        for (var p = 0u; p < column_vectors; p++) {
                            for (var k = 0u; k < vector_vec4s; k++) {
                                let inside = inside_tile(own_first, p, k) & vec4(own < rows.y);
                                let own_coefficients = with_params(coefficients[p][k], params);
                                let element = element_of(inputs[q][p][k], own_coefficients);
                                blocks[p][k] = accumulate_weighed(blocks[p][k], element, own_coefficients, inside);
                                if summed { total = merge(total, terms(element, own_coefficients, inside)); }
                            }
                        }
                        if !summed { continue; }
                        // All invocations take part in the sums of rows.
                        let joint = words_of_total(team_sum(local, threads_per_partial, half, horizontal_sum(total)));
                        half = 1u - half;
                        if local % threads_per_partial == 0u && own < rows.y {
                            let to = uniforms.row_partials + param * uniforms.partials_per_row + partial;
                            var before = real4();
                            if tile % uniforms.walked_tiles > 0u { before = load_workspace(to); }
                            store_workspace(to, before + joint);
                        }
                    }
                }
                for (var p = 0u; p < column_vectors; p++) {
                    for (var k = 0u; k < vector_vec4s; k++) {
                        sums[p][k] = end_block(sums[p][k], blocks[p][k]);
                    }
                }
            }

            for (var p = 0u; p < column_vectors; p++) {
                for (var k = 0u; k < vector_vec4s; k++) {
                    let column = own_column(own_first, p) + 4u * k;
                    let is_own = column < uniforms.end_column && thread_row == 0u;
                    let total = sum_of_thread_rows(local, writers(), sums[p][k]);
                    if !applied {
                        if is_own { store_partials(row_tile, batch, column, total); }
                    } else {
                        if is_own && !statistics_given { store_results_at(batch, column, total, scalars()); }
                        coefficients[p][k] = with_sums(coefficients[p][k], total, scalars());
                    }
                }
            }
        }
        if applied {
            for (var row = rows.x + thread_row; row < rows.y; row += thread_rows) {
                let params = params_of_row(param_of(batch, row));
                let row_start = start_of_row(batch, row);
                for (var p = 0u; p < column_vectors; p++) {
                    let column = column_of(own_first, p);
                    var inputs = load_in_row(row_start, column);
                    var outputs = VectorOutputs();
                    for (var k = 0u; k < vector_vec4s; k++) {
                        let own = with_params(coefficients[p][k], params);
                        outputs[k] = result(element_of(inputs[k], own), own);
                    }
                    if own_column(own_first, p) < uniforms.end_column { store_in_row(row_start, column, outputs); }
                }
            }
        }
    }
}

// Writes a row tile's partial sums of four columns.
fn store_partials(row_tile: u32, batch: u32, column: u32, sums: Accumulator) {
    let first = uniforms.partials + row_tile * uniforms.partial_stride;
    let statistic = batch * uniforms.columns + column;
    if paired_columns {
        store_paired(first, statistic, sums);
        return;
    }
    for (var i = 0u; i < min(4u, uniforms.end_column - column); i++) {
        store_workspace(first + statistic + i, words_of_total(total_of(sums, i)));
    }
}
