// Adds up the partial sums of each channel in a fixed order and writes what follows from them: the parameters'
// gradients (for batch norm diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂) and, for the elementwise pass, the
// means workspace[means + c] = (Σ diff_dst / m, Σ diff_dst · x̂ / m, 0, 0). For kernels
// over rows, read "row" or "column" for "channel".
// A forward pass merges partial statistics, (count, shift, δ, M2), in the same way. It writes mean and variance, or for
// RMS norm mean_square, and updates running_mean and running_variance with them. For the elementwise pass of batch norm
// and layer norm it writes workspace[means + c] = (shift, base · gamma + beta, r · gamma, gate) with base = −δ · r, where
// gamma and the gate are 1 and beta 0 unless they belong to channels.
//
// `threads` invocations, a constant of the text and a power of two, share four channels.
// The sums go to `sums` = [Σ; channels] [Σ·x̂; channels] [m] (`to_sums`) or come from there (`from_sums`),
// so that several devices can add theirs in between. For a forward pass `sums` has a record of each channel for each of
// the `shards`, and a device writes those of its own shard.
// Where there are very many partial sums, they are first added up to subtotals (`to_subtotals`): subtotal s of four
// channels goes to workspace[subtotals + 2 · (s · vec4s + vec4)] and the next record, or is `added` to the subtotal
// that is there. Statistics need four records.
// Partial sum p of channel c is a record of the workspace from `partials` on, which partials_of_splits.wgsl finds;
// where two channels share a record (`paired`), it is half of workspace[partials + c / 2 + p · partial_stride].
//
// Where channels that share statistics or parameters are `mixed` with others, partials_of_channels.wgsl finds them.
//
// Bindings: parameters (optional) for a forward pass over channels, or for a gradient with a gate, read; running_mean,
// running_variance (optional) read and written; workspace, sums (optional) read and written; gradients of parameters, or
// statistics (optional) written.
// Moves the partial sums in, 2 C elements out, or 2 C for each subtotal.

#import tiles, body, records, scalars, sum_across, partials_of_channels if mixed, partials_of_splits if not mixed

const summing_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn finish(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let channels = uniforms.channels;
    let vec4s = (channels + 3u) / 4u;
    let tile = tile_of(workgroup);
    let subtotal = tile / uniforms.channel_tiles;
    let vec4_index = tile % uniforms.channel_tiles * (workgroup_size / threads) + local / threads;
    // Past the last channel, the last one stands in.
    let channel = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(channels - 1u));

    var sums = Accumulator();
    if !from_sums {
        // In three tiers, so that rounding errors of one sign do not pile up in a channel of millions of equal
        // terms: 32 partial sums, 32 such sums, and all of those.
        var some = Accumulator();
        var many = Accumulator();
        var count_added = 0u;
        let start = subtotal * uniforms.subtotal_partials;
        let end = min(uniforms.partial_count, start + uniforms.subtotal_partials);
        for (var partial = start + local % threads; partial < end; partial += threads) {
            if paired {
                let index = uniforms.partials + 2u * min(vec4_index, vec4s - 1u) + partial * uniforms.partial_stride;
                some = merge(some, accumulator_of_pairs(load_workspace(index), load_workspace(index + 1u)));
            } else {
                some = merge(some, accumulator_of(load_records(vec4(uniforms.partials) + records_of(channel, partial))));
            }
            count_added++;
            if count_added % 32u == 0u {
                many = merge(many, some);
                some = Accumulator();
            }
            if count_added % 1024u == 0u {
                sums = merge(sums, many);
                many = Accumulator();
            }
        }
        sums = merge(sums, merge(many, some));
    }

    sums = sum_across(local, 1u, threads, sums);
    if local % threads > 0u || vec4_index >= vec4s { return; }
    if from_sums {
        sums = Accumulator();
        for (var shard = 0u; shard < uniforms.shards; shard++) {
            sums = merge(sums, received(channel, shard));
        }
    }

    let count = min(4u, channels - 4u * vec4_index);
    if to_subtotals {
        if subtotal * uniforms.subtotal_partials >= uniforms.partial_count { return; }
        if paired_records {
            let to = uniforms.subtotals + 2u * (subtotal * vec4s + vec4_index);
            if added { sums = merge(accumulator_of_pairs(load_workspace(to), load_workspace(to + 1u)), sums); }
            store_workspace(to, pair_of(sums, 0u));
            store_workspace(to + 1u, pair_of(sums, 1u));
        } else {
            let to = uniforms.subtotals + 4u * (subtotal * vec4s + vec4_index);
            if added { sums = merge(accumulator_of(load_records(vec4(to) + vec4(0u, 1u, 2u, 3u))), sums); }
            for (var i = 0u; i < 4u; i++) {
                store_workspace(to + i, words_of_total(total_of(sums, i)));
            }
        }
        return;
    }
    // A workgroup without a tile.
    if subtotal > 0u { return; }
    var scalars = scalars();
    if from_sums && paired_records {
        scalars.inverse_count = real(1.0) / load_of_sums(2u * channels);
    } else if to_sums && paired_records && vec4_index == 0u {
        store_of_sums(2u * channels, uniforms.count);
    }
    let words = derived(vec4_index, sums, scalars);
    for (var i = 0u; i < count; i++) {
        let c = 4u * vec4_index + i;
        if to_sums { send(c, words_of_total(total_of(sums, i))); }
        if derive { store_workspace(uniforms.means + c, real4(words.x[i], words.y[i], words.z[i], words.w[i])); }
    }
    store_results(vec4_index, sums, vec2(0u, count), scalars);
}

// Writes a channel's sums to the buffer `sums`.
fn send(channel: u32, words: real4) {
    if paired_records {
        store_of_sums(channel, words.x);
        store_of_sums(uniforms.channels + channel, words.y);
    } else {
        let first = 4u * (uniforms.shard * uniforms.channels + channel);
        store_of_sums(first, words.x);
        store_of_sums(first + 1u, words.y);
        store_of_sums(first + 2u, words.z);
        store_of_sums(first + 3u, words.w);
    }
}

// Reads a shard's sums of four channels from the buffer `sums`.
fn received(channel: vec4<u32>, shard: u32) -> Accumulator {
    let channels = vec4(uniforms.channels);
    if paired_records {
        return accumulator_of(Words(load_four_sums(channel), load_four_sums(channel + channels), real4(), real4()));
    }
    let first = vec4(4u) * (vec4(shard) * channels + channel);
    return accumulator_of(Words(
        load_four_sums(first),
        load_four_sums(first + vec4(1u)),
        load_four_sums(first + vec4(2u)),
        load_four_sums(first + vec4(3u)),
    ));
}

fn load_four_sums(index: vec4<u32>) -> real4 {
    return real4(load_of_sums(index.x), load_of_sums(index.y), load_of_sums(index.z), load_of_sums(index.w));
}
