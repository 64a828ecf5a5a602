// The whole gradient or forward pass in one dispatch, channels first: for channels so short that their second reading
// comes from a cache. For the gradient of batch norm diff_src = r · ((gamma · diff_dst − a) − x̂ · b), with
// a = gamma · Σ diff_dst / m and b = gamma · Σ diff_dst · x̂ / m. A forward pass takes the statistics of src and writes
// dst by them.
//
// A workgroup has a tile of channels, a multiple of 4, some of them at a time. Each channel's planes of `inner`
// consecutive elements are added up by `planes_at_once` teams of `threads_per_plane` invocations. Then, behind a
// barrier, diff_src or dst is written: of the whole tile at the end, since a vector may hold elements of two channels, or, if
// `in_turns`, of the channels that were just read. At every index of N a tile begins with a whole vector, so that
// no other workgroup writes to its vectors.
//
// Group norm's channels are those of all samples, and N has one index (`of_groups`). A tile is made of whole groups of
// `group_channels` channels: what a channel's elements need is of its group, whose sums are put together behind a
// barrier. The channels' own sums go to workspace[sums + c], for finish.wgsl to derive from them what else is written.
//
// Bindings of a gradient: src, diff_dst, mean, variance, gamma (optional: 1), beta (optional: 0, with an activation), mask
// read; diff_src written, or diff_dst in place, and with a mask diff_residual; diff_gamma, diff_beta (optional) written. Of groups none of these two, and workspace (optional).
// Bindings of a forward pass: src, gamma (optional: 1), beta (optional: 0) read; running_mean, running_variance
// (optional) read and written; dst, mean, variance written. Of groups no statistics, and workspace.
// Moves 2 n elements in (n forward), n out, where the second reading is cached; else twice as many in.

#import tiles, threads, body, records, scalars, vectors, plane_reduce, plane_apply, one_channel

var<workgroup> scratch: array<Total, workgroup_size>;
var<workgroup> stats: array<real4, workgroup_size>; // records of channels
var<workgroup> totals: array<Total, workgroup_size>;

@compute @workgroup_size(workgroup_size)
fn channels_first_fused(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let channel_threads = uniforms.threads_per_plane * uniforms.planes_at_once; // invocations of a channel
    let member = thread_of(local, channel_threads);
    let place = team_of(local, channel_threads);
    let planes_at_once = team_of(workgroup_size, channel_threads);

    let index = uniforms.first_tile + tile_of(workgroup);
    if index >= uniforms.end_tile { return; }

    let first = index * uniforms.tile_channels;
    let present = min(uniforms.tile_channels, uniforms.channels - first);

    // A tile has no more channels than the workgroup has invocations. No loop: FXC would take the next one's
    // barriers for divergent.
    if local < uniforms.tile_channels {
        let channel = min(first + local, uniforms.channels - 1u);
        stats[local] = record_of_channel(channel, uniforms.epsilon);
    }
    workgroupBarrier();

    for (var turn = 0u; turn < uniforms.tile_channels; turn += planes_at_once) {
        let i = turn + place;
        var sum = Total();
        if i < present {
            sum = sums_of_channel(first + i, i, member);
        }
        scratch[local] = sum;
        workgroupBarrier();
        for (var stride = channel_threads / 2u; stride > 0u; stride /= 2u) {
            if member < stride {
                scratch[local] = merge_totals(scratch[local], scratch[local + stride]);
            }
            workgroupBarrier();
        }
        if member == 0u && i < uniforms.tile_channels {
            totals[i] = scratch[local];
        }
        workgroupBarrier();
        // The invocation writes what it read itself, so that diff_src may be written in diff_dst's place.
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
    for (var vec4_index = local; !of_groups && vec4_index < (present + 3u) / 4u; vec4_index += workgroup_size) {
        let count = min(4u, present - 4u * vec4_index);
        let i = 4u * vec4_index;
        let sums = accumulator_of(side_by_side(
            words_of_total(totals[i]),
            words_of_total(totals[i + 1u]),
            words_of_total(totals[i + 2u]),
            words_of_total(totals[i + 3u]),
        ));
        store_results(first / 4u + vec4_index, sums, count, scalars());
    }
    if !in_turns {
        storageBarrier(); // diff_dst was read before diff_src is written in its place
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

// What the tile's channel i adds to its group.
fn in_group(i: u32) -> Total {
    let sums = accumulator_of(splat(words_of_total(totals[i])));
    return total_of(weigh(sums, coefficients_of(splat(stats[i]))), 0u);
}

// Of the tile's channel i; past the last there is nothing to write, so any will do.
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
    if !vector_aligned { next = plane_coefficients(i + 1u); }
    for (var n = team_of(member, uniforms.threads_per_plane); n < uniforms.outer; n += uniforms.planes_at_once) {
        let start = plane_start_of(n, channel);
        // Where the last vector ends behind the plane, that is in the plane of the tile's next channel, or past
        // the tensor's end.
        apply_to_plane(i, own, next, start, vec2(start, start + uniforms.inner), thread);
    }
}
