// Adds the partial sums of each channel, in a fixed order, and derives what follows from the sums: the
// parameter gradients diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂, and for the elementwise pass
// the means workspace[means + c] = (Σ diff_dst / m, Σ diff_dst · x̂ / m, 0, 0). `lanes` invocations, a
// constant of the text and a power of two, share four channels.
// The sums go to `sums` = [Σ; channels] [Σ·x̂; channels] [m] (`to_sums`) or come from there (`from_sums`),
// so that several devices can add theirs in between. Of very many parts, groups are added first (`grouped`): the sum of
// group g of four channels goes to workspace[groups + 2 · (g · quads + quad)] and the next, or is `added` to what is there.
// Channel c's part p is workspace[partials + c · channel_stride + offset_of(p)]; where two channels share a
// record (`paired`), half of workspace[partials + c / 2 + p · part_stride].
//
// Bindings: workspace, sums read and written; diff_gamma, diff_beta (optional) written.
// Moves the partial sums in, 2 C elements out; where they are `grouped`, 2 C for each group.

var<workgroup> shared_sums: array<real4, workgroup_size>;
var<workgroup> shared_sums_xhat: array<real4, workgroup_size>;

@compute @workgroup_size(workgroup_size)
fn finish(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let channels = uniforms.channels;
    let quads = (channels + 3u) / 4u;
    let tile = tile_of(workgroup);
    let group = tile / uniforms.channel_tiles;
    let quad = tile % uniforms.channel_tiles * (workgroup_size / lanes) + local / lanes;
    // Past the last channel, that one stands in.
    let channel = min(vec4(4u * quad) + vec4(0u, 1u, 2u, 3u), vec4(channels - 1u));

    var sum = real4();
    var sum_xhat = real4();
    if !from_sums {
        // In three tiers, so that a channel of millions of equal terms does not pile up roundings of one
        // sign: 32 parts, 32 times such a sum, all the rest.
        let first = vec4(uniforms.partials) + channel * uniforms.channel_stride;
        let first_pair = uniforms.partials + 2u * min(quad, quads - 1u);
        var some = real4();
        var some_xhat = real4();
        var many = real4();
        var many_xhat = real4();
        var count_added = 0u;
        let start = group * uniforms.group_parts;
        let end = min(uniforms.parts, start + uniforms.group_parts);
        for (var part = start + local % lanes; part < end; part += lanes) {
            if paired {
                let index = first_pair + part * uniforms.part_stride;
                let a = load_workspace(index);
                let b = load_workspace(index + 1u);
                some += real4(a.x, a.z, b.x, b.z);
                some_xhat += real4(a.y, a.w, b.y, b.w);
            } else {
                let index = first + vec4(offset_of(part));
                let a = load_workspace(index.x);
                let b = load_workspace(index.y);
                let c = load_workspace(index.z);
                let d = load_workspace(index.w);
                some += real4(a.x, b.x, c.x, d.x);
                some_xhat += real4(a.y, b.y, c.y, d.y);
            }
            count_added++;
            if count_added % 32u == 0u {
                many += some;
                many_xhat += some_xhat;
                some = real4();
                some_xhat = real4();
            }
            if count_added % 1024u == 0u {
                sum += many;
                sum_xhat += many_xhat;
                many = real4();
                many_xhat = real4();
            }
        }
        sum += many + some;
        sum_xhat += many_xhat + some_xhat;
    }

    if lanes > 1u {
        shared_sums[local] = sum;
        shared_sums_xhat[local] = sum_xhat;
        workgroupBarrier();
        for (var stride = lanes / 2u; stride > 0u; stride /= 2u) {
            if local % lanes < stride {
                shared_sums[local] += shared_sums[local + stride];
                shared_sums_xhat[local] += shared_sums_xhat[local + stride];
            }
            workgroupBarrier();
        }
        sum = shared_sums[local];
        sum_xhat = shared_sums_xhat[local];
    }
    if local % lanes > 0u || quad >= quads { return; }

    let count = min(4u, channels - 4u * quad);
    if grouped {
        if group * uniforms.group_parts >= uniforms.parts { return; }
        let to = uniforms.groups + 2u * (group * quads + quad);
        var first = real4(sum.x, sum_xhat.x, sum.y, sum_xhat.y);
        var second = real4(sum.z, sum_xhat.z, sum.w, sum_xhat.w);
        if added {
            first += load_workspace(to);
            second += load_workspace(to + 1u);
        }
        store_workspace(to, first);
        store_workspace(to + 1u, second);
        return;
    }
    // A workgroup without a tile.
    if group > 0u { return; }
    var inverse_count = uniforms.inverse_count;
    if from_sums {
        inverse_count = real(1.0) / load_sum(2u * channels);
    } else if to_sums && quad == 0u {
        store_sum(2u * channels, uniforms.count);
    }
    for (var i = 0u; i < 4u; i++) {
        if i >= count { continue; }
        let c = 4u * quad + i;
        if from_sums {
            sum[i] = load_sum(c);
            sum_xhat[i] = load_sum(channels + c);
        } else if to_sums {
            store_sum(c, sum[i]);
            store_sum(channels + c, sum_xhat[i]);
        }
        if derive {
            let means = real2(sum[i], sum_xhat[i]) * inverse_count;
            store_workspace(uniforms.means + c, real4(means, real2()));
        }
    }
    store_part_diff_beta(quad, sum, count);
    store_part_diff_gamma(quad, sum_xhat, count);
}

fn offset_of(part: u32) -> u32 {
    if plain { return part * uniforms.part_stride; }
    let split_parts = uniforms.repeats * uniforms.inner;
    let split = part / split_parts;
    let k = part % split_parts / uniforms.inner;
    return split * uniforms.part_stride + k * uniforms.channels * uniforms.inner + part % uniforms.inner;
}
