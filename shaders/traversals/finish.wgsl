// Adds the partial sums of each channel in a fixed order and writes what follows from them: the parameters' gradients,
// for batch norm diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂, and for the elementwise pass the means
// workspace[means + c] = (Σ diff_dst / m, Σ diff_dst · x̂ / m, 0, 0). For rows, read "row" or "column" for "channel".
//
// `threads` invocations, a constant of the text and a power of two, share four channels.
// The sums go to `sums` = [Σ; channels] [Σ·x̂; channels] [m] (`to_sums`) or come from there (`from_sums`),
// so that several devices can add theirs in between.
// Where there are very many parts, groups of them are added first (`grouped`): the sum of group g of four channels goes
// to workspace[groups + 2 · (g · vec4s + vec4)] and the next record, or is `added` to what is there.
// Channel c's part p is workspace[partials + c · channel_stride + offset_of(p)]; where two channels share a
// record (`paired`), half of workspace[partials + c / 2 + p · part_stride].
//
// Bindings: workspace, sums read and written; diff_gamma, diff_beta (optional) written.
// Moves the partial sums in, 2 C elements out; where they are `grouped`, 2 C for each group.
//
// Needs: tiles, body, records.

var<workgroup> shared_sums: array<Sums, workgroup_size>;

@compute @workgroup_size(workgroup_size)
fn finish(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let channels = uniforms.channels;
    let vec4s = (channels + 3u) / 4u;
    let tile = tile_of(workgroup);
    let group = tile / uniforms.channel_tiles;
    let vec4_index = tile % uniforms.channel_tiles * (workgroup_size / threads) + local / threads;
    // Past the last channel, that one stands in.
    let channel = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(channels - 1u));

    var sums = Sums();
    if !from_sums {
        // In three tiers, so that a channel of millions of equal terms does not pile up roundings of one
        // sign: 32 parts, 32 times such a sum, all the rest.
        let first = vec4(uniforms.partials) + channel * uniforms.channel_stride;
        let first_pair = uniforms.partials + 2u * min(vec4_index, vec4s - 1u);
        var some = Sums();
        var many = Sums();
        var count_added = 0u;
        let start = group * uniforms.group_parts;
        let end = min(uniforms.parts, start + uniforms.group_parts);
        for (var part = start + local % threads; part < end; part += threads) {
            if paired {
                let index = first_pair + part * uniforms.part_stride;
                some = merge(some, sums_of_pairs(load_workspace(index), load_workspace(index + 1u)));
            } else {
                some = merge(some, sums_of(load_records(first + vec4(offset_of(part)))));
            }
            count_added++;
            if count_added % 32u == 0u {
                many = merge(many, some);
                some = Sums();
            }
            if count_added % 1024u == 0u {
                sums = merge(sums, many);
                many = Sums();
            }
        }
        sums = merge(sums, merge(many, some));
    }

    if threads > 1u {
        shared_sums[local] = sums;
        workgroupBarrier();
        for (var stride = threads / 2u; stride > 0u; stride /= 2u) {
            if local % threads < stride {
                shared_sums[local] = merge(shared_sums[local], shared_sums[local + stride]);
            }
            workgroupBarrier();
        }
        sums = shared_sums[local];
    }
    if local % threads > 0u || vec4_index >= vec4s { return; }
    if from_sums {
        sums = sums_of(Words(load_four_sums(channel), load_four_sums(channel + vec4(channels)), real4(), real4()));
    }

    let count = min(4u, channels - 4u * vec4_index);
    if grouped {
        if group * uniforms.group_parts >= uniforms.parts { return; }
        let to = uniforms.groups + 2u * (group * vec4s + vec4_index);
        if added { sums = merge(sums_of_pairs(load_workspace(to), load_workspace(to + 1u)), sums); }
        store_workspace(to, pair_of(sums, 0u));
        store_workspace(to + 1u, pair_of(sums, 1u));
        return;
    }
    // A workgroup without a tile.
    if group > 0u { return; }
    var inverse_count = uniforms.inverse_count;
    if from_sums {
        inverse_count = real(1.0) / load_sum(2u * channels);
    } else if to_sums && vec4_index == 0u {
        store_sum(2u * channels, uniforms.count);
    }
    for (var i = 0u; i < count; i++) {
        let c = 4u * vec4_index + i;
        let words = words_of_record(record_of(sums, i));
        if to_sums {
            store_sum(c, words.x);
            store_sum(channels + c, words.y);
        }
        if derive { store_workspace(uniforms.means + c, words * inverse_count); }
    }
    store_parameter_gradients(vec4_index, sums, count);
}

fn load_four_sums(index: vec4<u32>) -> real4 {
    return real4(load_sum(index.x), load_sum(index.y), load_sum(index.z), load_sum(index.w));
}

fn offset_of(part: u32) -> u32 {
    if plain { return part * uniforms.part_stride; }
    let split_parts = uniforms.repeats * uniforms.inner;
    let split = part / split_parts;
    let k = part % split_parts / uniforms.inner;
    return split * uniforms.part_stride + k * uniforms.channels * uniforms.inner + part % uniforms.inner;
}
