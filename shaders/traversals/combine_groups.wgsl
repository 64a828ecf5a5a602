// Combines the sums of channels that share statistics: groups of `group_channels` channels, of all samples. A channel's
// sums are complete, or `partial_count` partial sums. Each channel gets the record workspace[combined + c] that the
// elementwise pass needs, which may be in the place of its sums:
// * for a gradient (a, b, 0, 0), the means of gamma · diff_dst and gamma · diff_dst · x̂ over the elements of the group;
// * for a forward pass (shift, base · gamma + beta, r · gamma, gate), where the statistics are the group's.
// It writes the results, if they are bound: the statistics of groups, or for a gradient, in workgroups after those of
// the groups (`of_parameters`), the gradients of parameters, from the sums of all channels that share these.
//
// `threads` invocations, a constant of the text and a power of two, share four groups or four parameters. A gradient
// reads the coefficients of channel c from workspace[stats + c].
//
// Bindings: parameters (optional) for a forward pass read; workspace read and written; statistics, or gradients of
// parameters (optional) written.
// Moves the partial sums in, a gradient's twice, a record of each channel out, and for a gradient one in.

#import tiles, body, records, scalars, one_channel, sum_across, partials_of_splits
#import mixed_channels if mixed, grouped_channels if not mixed

const summing_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn combine_groups(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = tile_of(workgroup);
    let are_groups = !of_parameters || tile < uniforms.group_tiles;
    var vec4_index = tile * (workgroup_size / threads) + local / threads;
    var end = uniforms.statistics;
    var members = uniforms.group_channels; // channels of a group, or with a parameter
    if !are_groups {
        vec4_index -= uniforms.group_tiles * (workgroup_size / threads);
        end = uniforms.parameters;
        members = uniforms.channels / max(uniforms.parameters, 1u);
    }
    // Past the last group, the last one stands in.
    let index = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(max(end, 1u) - 1u));

    // In two tiers, for the reason that finish.wgsl gives for its three.
    var total = Accumulator();
    var some = Accumulator();
    var count_added = 0u;
    for (var k = local % threads; k < members * uniforms.partial_count; k += threads) {
        let channel = channels_of(index, k % members, are_groups);
        var sums = accumulator_of(load_records(vec4(uniforms.partials) + records_of(channel, k / members)));
        if are_groups { sums = weigh(sums, coefficients_at(channel)); }
        some = merge(some, sums);
        count_added++;
        if count_added % 32u == 0u {
            total = merge(total, some);
            some = Accumulator();
        }
    }
    total = merge(total, some);

    total = sum_across(local, 1u, threads, total);
    if threads > 1u { storageBarrier(); } // all sums are read before they are replaced
    if 4u * vec4_index >= end { return; }

    let count = min(4u, end - 4u * vec4_index);
    // The groups' sums are those of statistics, and a gradient's results those of parameters.
    if are_groups != statistics_given && local % threads == 0u { store_results(vec4_index, total, vec2(0u, count), scalars()); }
    if !are_groups { return; }
    for (var k = local % threads; k < members; k += threads) {
        let channel = channels_of(index, k, true);
        let words = derived_of_group(coefficients_at(channel), total, scalars());
        for (var i = 0u; i < count; i++) {
            store_workspace(uniforms.combined + channel[i], real4(words.x[i], words.y[i], words.z[i], words.w[i]));
        }
    }
}

// Channel k of each of four groups, or of those with each of four parameters.
fn channels_of(index: vec4<u32>, k: u32, are_groups: bool) -> vec4<u32> {
    if are_groups {
        return vec4(
            channel_of_statistic(index.x, k),
            channel_of_statistic(index.y, k),
            channel_of_statistic(index.z, k),
            channel_of_statistic(index.w, k),
        );
    }
    return vec4(
        channel_of_parameter(index.x, k),
        channel_of_parameter(index.y, k),
        channel_of_parameter(index.z, k),
        channel_of_parameter(index.w, k),
    );
}

// The coefficients of four channels that are known before their sums.
fn coefficients_at(channel: vec4<u32>) -> Coefficients {
    if statistics_given { return coefficients_of(load_records(vec4(uniforms.stats) + channel)); }
    let params = params_side_by_side(
        params_of(parameter_of(channel.x)),
        params_of(parameter_of(channel.y)),
        params_of(parameter_of(channel.z)),
        params_of(parameter_of(channel.w)),
    );
    return with_params(statistics_of(0u, uniforms.epsilon), params);
}
