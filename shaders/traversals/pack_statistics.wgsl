// Gathers the statistics and gamma of each channel (or row) c in one record, for batch norm
// workspace[stats + c] = (mean, r, gamma, 0) with r = 1 / sqrt(variance + epsilon). An invocation does four.
//
// Bindings: mean, variance, gamma (optional: 1) read; workspace written.
// Moves 3 C elements in, 4 C out.
//
// Needs: tiles, body, params, records.

@compute @workgroup_size(workgroup_size)
fn pack_statistics(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let vec4_index = tile_of(workgroup) * workgroup_size + local;
    if vec4_index >= (uniforms.channels + 3u) / 4u { return; }

    var cell = statistics_of(vec4_index, uniforms.epsilon);
    if again {
        // Past the last group, that one stands in.
        let group = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.channels - 1u));
        cell = cell_of(load_records(vec4(uniforms.stats) + group));
    }
    cell = with_params(cell, load_params(vec4_index));
    for (var i = 0u; i < min(4u, uniforms.channels - 4u * vec4_index); i++) {
        store_workspace(uniforms.stats + 4u * vec4_index + i, record_of_cell(cell, i));
    }
}
