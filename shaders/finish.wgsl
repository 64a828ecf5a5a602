// Adds the partial sums of each channel, in a fixed order, and derives what follows from the sums: the
// parameter gradients diff_beta = Σ diff_dst and diff_gamma = Σ diff_dst · x̂, and the coefficients
// workspace[coefficients + c] = (Σ diff_dst / m, Σ diff_dst · x̂ / m, gamma · r, 0) of the elementwise
// pass. A workgroup does four channels.
// The sums also go to `sums` = [Σ; channels] [Σ·x̂; channels] [m], or come from there (`from_sums`),
// so that several devices can add theirs in between.
// Channel c's partial t of `parts` is at split · width + (k · channels + c) · inner + i, with
// t = (split · repeats + k) · inner + i.
//
// Bindings: workspace, sums read and written; diff_gamma, diff_beta (optional) written.
// Moves the partial sums in, 2 C elements out.

struct Uniforms {
    channels: u32,
    inner: u32,
    repeats: u32,
    width: u32,
    parts: u32,        // partial sums of a channel
    grid_width: u32, // workgroups along x
    partials: u32,
    stats: u32,
    coefficients: u32,
    from_sums: u32,    // 1: read sums; 0: write them
    derive: u32,       // 1: also write the coefficients
    constant: u32,     // 1: constant statistics, the means count as 0
    count: real,       // m
    inverse_count: real,
}

@compute @workgroup_size(workgroup_size)
fn finish(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let channels = uniforms.channels;
    let quads = (channels + 3u) / 4u;
    let quad = tile_of(workgroup);
    if quad >= quads { return; }

    let channel = 4u * quad + local % 4u;
    // In three tiers, so that a channel of millions of equal terms does not pile up roundings of one
    // sign: 32 parts, 32 times such a sum, all the rest.
    var value = real2();
    if channel < channels && uniforms.from_sums == 0u {
        let split_parts = uniforms.repeats * uniforms.inner;
        var some = real2();
        var many = real2();
        var added = 0u;
        for (var part = local / 4u; part < uniforms.parts; part += workgroup_size / 4u) {
            let split = part / split_parts;
            let k = (part % split_parts) / uniforms.inner;
            let i = part % uniforms.inner;
            let index = split * uniforms.width + (k * channels + channel) * uniforms.inner + i;
            some += workspace[uniforms.partials + index].xy;
            added++;
            if added % 32u == 0u {
                many += some;
                some = real2();
            }
            if added % 1024u == 0u {
                value += many;
                many = real2();
            }
        }
        value += many + some;
    }
    workgroup_sum(local, value, 4u);

    var inverse_count = uniforms.inverse_count;
    if uniforms.from_sums == 1u {
        inverse_count = real(1.0) / sums[2u * channels];
        if local < 4u && channel < channels {
            scratch[local] = real2(sums[channel], sums[channels + channel]);
        }
    }
    workgroupBarrier();

    if local < 4u && channel < channels {
        let total = scratch[local];
        if uniforms.from_sums == 0u {
            sums[channel] = total.x;
            sums[channels + channel] = total.y;
        }
        if uniforms.derive == 1u {
            let stats = workspace[uniforms.stats + channel];
            let means = select(total * inverse_count, real2(), uniforms.constant == 1u);
            workspace[uniforms.coefficients + channel] = real4(means, stats.z * stats.y, 0.0);
        }
    }
    if local == 0u {
        if quad == 0u && uniforms.from_sums == 0u {
            sums[2u * channels] = uniforms.count;
        }
        let count = min(4u, channels - 4u * quad);
        store_part_diff_beta(quad, real4(scratch[0].x, scratch[1].x, scratch[2].x, scratch[3].x), count);
        store_part_diff_gamma(quad, real4(scratch[0].y, scratch[1].y, scratch[2].y, scratch[3].y), count);
    }
}
