// Gathers the statistics and parameters of each channel (or row) c in one record, workspace[stats + c]: for the
// gradient of batch norm (mean, r, gamma, beta) with r = 1 / sqrt(variance + epsilon), for inference (mean, beta, r ·
// gamma, gate). An invocation does four channels. Where an adapter binds too few buffers for all of these tensors, a
// second dispatch adds gamma and beta to the records (`again`). Group norm's channels are those of all samples, each
// with the statistics of its group (`of_groups`).
//
// Bindings: statistics, parameters (optional) read; workspace written, and with `again` read.
// Moves up to 4 C elements in, 4 C out.

#import tiles, body, params, records, one_channel
#import mixed_channels if mixed, grouped_channels if not mixed

@compute @workgroup_size(workgroup_size)
fn pack_statistics(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let vec4_index = tile_of(workgroup) * workgroup_size + local;
    if vec4_index >= (uniforms.channels + 3u) / 4u { return; }
    let count = min(4u, uniforms.channels - 4u * vec4_index);

    if of_groups {
        for (var i = 0u; i < count; i++) {
            let channel = 4u * vec4_index + i;
            var record = record_of_channel(statistic_of(channel), parameter_of(channel), uniforms.epsilon);
            if again {
                let coefficients = coefficients_of(splat(load_workspace(uniforms.stats + channel)));
                record = record_of_coefficients(with_params(coefficients, params_of(parameter_of(channel))), 0u);
            }
            store_workspace(uniforms.stats + channel, record);
        }
        return;
    }
    var coefficients = statistics_of(vec4_index, uniforms.epsilon);
    if again {
        // Past the last channel, the last one stands in.
        let group = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.channels - 1u));
        coefficients = coefficients_of(load_records(vec4(uniforms.stats) + group));
    }
    coefficients = with_params(coefficients, load_params(vec4_index));
    for (var i = 0u; i < count; i++) {
        store_workspace(uniforms.stats + 4u * vec4_index + i, record_of_coefficients(coefficients, i));
    }
}
