// The whole gradient or forward pass in one dispatch, channels first, for channels so short that a cache
// serves their second reading. For the gradient of batch norm diff_src = r · ((gamma · diff_dst − a) − x̂ · b), with
// a = gamma · Σ diff_dst / m and b = gamma · Σ diff_dst · x̂ / m. A forward pass computes the statistics of src and
// writes dst by them.
//
// A workgroup does a tile of channels, some of them at a time. `planes_at_once` teams of
// `threads_per_plane` invocations add up each channel's planes of `inner` consecutive elements. After a barrier they
// write diff_src or dst: for the whole tile at the end, since a vector may hold elements of two channels, or, if
// `in_turns`, for the channels that were just read. At every index of N a tile begins with a whole vector, so that
// no other workgroup writes to its vectors.
//
// Group norm's channels are those of all samples, and N has one index (`of_groups`). A tile consists of whole groups of
// `group_channels` channels: a channel's elements need its group's sums, which are combined after a barrier. The
// channels' own sums go to workspace[sums + c], from which finish.wgsl derives the other results.
//
// Bindings of a gradient: src, diff_dst, statistics, parameters (optional), mask read; diff_src written, or diff_dst in
// place, and with a mask diff_residual; gradients of parameters (optional) written. For groups workspace (optional)
// takes the place of these.
// Bindings of a forward pass: src, parameters (optional) read; running_mean, running_variance (optional) read and
// written; dst, statistics written. For groups workspace takes the place of these statistics.
// Moves 2 n elements in (n forward), n out, where the second reading is cached; else twice as many in.

#import tiles, threads, body, records, scalars, vectors, plane_reduce, plane_apply, one_channel, grouped_channels, team_sum

var<workgroup> stats: array<real4, workgroup_size>; // records of channels
var<workgroup> totals: array<Total, workgroup_size>;

const team_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn channels_first_fused(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let channel_threads = uniforms.threads_per_plane * uniforms.planes_at_once; // invocations that share a channel
    let member = thread_of(local, channel_threads);
    let place = team_of(local, channel_threads);
    let planes_at_once = team_of(workgroup_size, channel_threads);

    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }

    let first = index * uniforms.tile_channels;
    let present = min(uniforms.tile_channels, uniforms.channels - first);

    // A tile has no more channels than the workgroup has invocations. Not a loop: FXC would take the barriers
    // of the next loop for divergent.
    if local < uniforms.tile_channels {
        let channel = min(first + local, uniforms.channels - 1u);
        stats[local] = record_of_channel(statistic_of(channel), parameter_of(channel), uniforms.epsilon);
    }
    workgroupBarrier();

    for (var turn = 0u; turn < uniforms.tile_channels; turn += planes_at_once) {
        let i = turn + place;
        var sum = Total();
        if i < present {
            sum = sums_of_channel(first + i, i, member);
        }
        sum = team_sum(local, channel_threads, 0u, sum);
        if member == 0u && i < uniforms.tile_channels {
            totals[i] = sum;
        }
        workgroupBarrier();
        // An invocation writes only where it read, so that diff_src may overwrite diff_dst.
        if in_turns && i < present {
            apply_to_channel(first + i, i, member);
        }
    }

    if of_groups {
        var total = Total();
        if local < uniforms.tile_channels {
            let group_start = local - local % uniforms.group_channels;
            for (var k = 0u; k < uniforms.group_channels; k++) {
                total = merge_totals(total, in_group(group_start + k));
            }
        }
        if local < present {
            store_workspace(uniforms.sums + first + local, words_of_total(totals[local]));
        }
        workgroupBarrier();
        if local < uniforms.tile_channels {
            totals[local] = total;
        }
        workgroupBarrier();
    }
    let end = (first + present + 3u) / 4u;
    for (var vec4_index = first / 4u + local; !of_groups && vec4_index < end; vec4_index += workgroup_size) {
        // Of these four channels, those that are the tile's.
        let four = vec2(4u * vec4_index);
        let lanes = clamp(vec2(first, first + present), four, four + vec2(4u)) - four;
        let i = clamp(four.xxxx + vec4(0u, 1u, 2u, 3u), vec4(first), vec4(first + present - 1u)) - vec4(first);
        let sums = accumulator_of(side_by_side(
            words_of_total(totals[i.x]),
            words_of_total(totals[i.y]),
            words_of_total(totals[i.z]),
            words_of_total(totals[i.w]),
        ));
        store_results(vec4_index, sums, lanes, scalars());
    }
    if !in_turns {
        storageBarrier(); // all of diff_dst is read before diff_src overwrites it
        for (var i = place; i < present; i += planes_at_once) {
            apply_to_channel(first + i, i, member);
        }
    }
}

// The first element of a plane, relative to the window.
fn plane_start_of(n: u32, channel: u32) -> u32 {
    return (n * uniforms.channels + channel) * uniforms.inner - uniforms.window;
}

// This invocation's share of a channel's sums.
fn sums_of_channel(channel: u32, i: u32, member: u32) -> Total {
    let thread = thread_of(member, uniforms.threads_per_plane);
    let coefficients = coefficients_of(splat(stats[i]));
    var sums = Accumulator();
    for (var n = team_of(member, uniforms.threads_per_plane); n < uniforms.outer; n += uniforms.planes_at_once) {
        let start = plane_start_of(n, channel);
        let range = vec2(start, start + uniforms.inner);
        let end = (range.y + vector_elements - 1u) / vector_elements;
        for (var vector = start / vector_elements + thread; vector < end; vector += block_vectors * uniforms.threads_per_plane) {
            sums = add_block(sums, range, vector, end, coefficients);
        }
    }
    return horizontal_sum(sums);
}

// The sums that the tile's channel i adds to its group's.
fn in_group(i: u32) -> Total {
    let sums = accumulator_of(splat(words_of_total(totals[i])));
    return total_of(weigh(sums, coefficients_of(splat(stats[i]))), 0u);
}

// The coefficients of the tile's channel i. Past the last channel nothing is written, so any will do.
fn plane_coefficients(i: u32) -> Coefficients {
    let k = min(i, uniforms.tile_channels - 1u);
    return with_sums(coefficients_of(splat(stats[k])), accumulator_of(splat(words_of_total(totals[k]))), scalars());
}

fn outputs_of(inputs: Inputs, coefficients: Coefficients) -> Outputs {
    return result(element_of(inputs, coefficients), coefficients);
}

fn apply_to_channel(channel: u32, i: u32, member: u32) {
    let thread = thread_of(member, uniforms.threads_per_plane);
    let own = plane_coefficients(i);
    var next = own;
    if !vector_aligned && !(branches && !vec4_aligned) { next = plane_coefficients(i + 1u); }
    for (var n = team_of(member, uniforms.threads_per_plane); n < uniforms.outer; n += uniforms.planes_at_once) {
        let start = plane_start_of(n, channel);
        // Where the last vector ends after the plane, its end is in the plane of the tile's next channel, or past
        // the tensor's end.
        apply_to_plane(i, own, next, start, vec2(start, start + uniforms.inner), thread);
    }
}
