// Combines the sums of channels that share statistics: groups of `group_channels` channels, of all samples. The sums of
// channel c are workspace[sums + c]. They are replaced by the record that the elementwise pass needs:
// * for a gradient (Σ diff_dst, Σ diff_dst · x̂, a, b), where the sums are the channel's own, and a and b are the means
//   of gamma · diff_dst and gamma · diff_dst · x̂ over the elements of the group;
// * for a forward pass (shift, base · gamma + beta, r · gamma, gate), where the statistics are the group's.
//
// `threads` invocations, a constant of the text and a power of two, share four groups. A gradient reads the
// coefficients of channel c from workspace[stats + c].
//
// Bindings: parameters (optional) for a forward pass read; workspace read and written.
// Moves a record of each channel in, two for a gradient, and one out.

#import tiles, body, records, scalars, one_channel, sum_across
#import mixed_channels if mixed, grouped_channels if not mixed

const summing_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn combine_groups(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let vec4_index = tile_of(workgroup) * (workgroup_size / threads) + local / threads;
    // Past the last group, the last one stands in.
    let group = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.statistics - 1u));

    // In two tiers, for the reason that finish.wgsl gives for its three.
    var total = Accumulator();
    var some = Accumulator();
    var count_added = 0u;
    for (var k = local % threads; k < uniforms.group_channels; k += threads) {
        let channel = channels_of(group, k);
        some = merge(some, weigh(own_sums(channel), coefficients_at(channel)));
        count_added++;
        if count_added % 32u == 0u {
            total = merge(total, some);
            some = Accumulator();
        }
    }
    total = merge(total, some);

    total = sum_across(local, 1u, threads, total);
    if threads > 1u { storageBarrier(); } // all sums are read before they are replaced
    if 4u * vec4_index >= uniforms.statistics { return; }

    let count = min(4u, uniforms.statistics - 4u * vec4_index);
    for (var k = local % threads; k < uniforms.group_channels; k += threads) {
        let channel = channels_of(group, k);
        let words = derived_of_group(coefficients_at(channel), own_sums(channel), total, scalars());
        for (var i = 0u; i < count; i++) {
            store_workspace(uniforms.sums + channel[i], real4(words.x[i], words.y[i], words.z[i], words.w[i]));
        }
    }
}

// Channel k of each of four groups.
fn channels_of(group: vec4<u32>, k: u32) -> vec4<u32> {
    return vec4(
        channel_of_statistic(group.x, k),
        channel_of_statistic(group.y, k),
        channel_of_statistic(group.z, k),
        channel_of_statistic(group.w, k),
    );
}

fn own_sums(channel: vec4<u32>) -> Accumulator {
    return accumulator_of(load_records(vec4(uniforms.sums) + channel));
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
