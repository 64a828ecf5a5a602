// The elementwise pass, channels first. A gradient writes diff_src, from src, diff_dst and the means of the sums that
// finish.wgsl wrote. For batch norm diff_src = r · ((gamma · diff_dst − a) − x̂ · b), with a = gamma · Σ diff_dst / m
// and b = gamma · Σ diff_dst · x̂ / m. With constant statistics a and b are 0, and src is bound only for an activation.
// Where there are few partial sums, it adds them up itself (`adds_up`), and its first tiles write the gradients of
// parameters, so that there is no finish.wgsl.
// A forward pass writes dst, from src and the record that finish.wgsl or pack_statistics.wgsl wrote for each channel.
//
// A channel's elements are planes of `inner` consecutive elements. A workgroup does a tile: `tile_planes` planes, or
// one chunk of one plane. Where planes are whole vectors, its invocations may share the tile's vectors, whatever planes
// these are in (`by_vectors`). Else a team of `threads_per_plane` invocations shares a plane.
//
// Bindings: src (for a gradient by batch statistics or with an activation, and for a forward pass), diff_dst and mask
// (for a gradient), residual (for a forward pass) read; workspace read, or statistics and parameters, unless they are
// `recorded`, or parameters, if records are `of_statistics`; diff_src written, or diff_dst in place, and with a mask
// diff_residual, gradients of parameters (`adds_up`); or dst written.
// Moves 2 n elements in (n with constant statistics, or forward), n out; n more in for a residual; n / 32 words in and
// n more out for a mask.

#import tiles, body, records, scalars, channels_first, channel_records, few_partials
#import grouped_channels, one_channel, planes_by_vectors if by_vectors, planes_by_teams if not by_vectors

@compute @workgroup_size(workgroup_size)
fn channels_first_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let first = tile / uniforms.chunks * uniforms.tile_planes;
    apply_to_planes(local, first, min(uniforms.planes, first + uniforms.tile_planes), tile % uniforms.chunks);
    // The first tiles write the results of all channels.
    if adds_up { store_results_of_channels(tile * workgroup_size + local, scalars()); }
}

// The record of a plane's channel before its sums.
fn record_of_plane(plane: u32) -> real4 {
    let channel = channel_of(plane);
    if !of_statistics { return record_before_sums(channel); }
    // The record is that of the group: the channel has the parameters.
    let known = coefficients_of(splat(load_workspace(uniforms.stats + statistic_of(channel))));
    return record_of_coefficients(with_params(known, params_of(parameter_of(channel))), 0u);
}

// What follows from the sums of a plane's channel.
fn means_of_plane(plane: u32) -> Words {
    let channel = channel_of(plane);
    if adds_up { return derived(0u, sums_of_channel(channel), scalars()); }
    if !has_means { return Words(); }
    return splat(load_workspace(uniforms.means + channel));
}

fn coefficients_by(record: real4, means: Words) -> Coefficients {
    let coefficients = coefficients_of(splat(record));
    if !(has_means || adds_up) { return coefficients; }
    return combine(coefficients, means);
}

fn outputs_of(inputs: Inputs, coefficients: Coefficients) -> Outputs {
    let element = element_of(inputs, coefficients);
    if !(has_means || adds_up) { return result_of_constants(element, coefficients); }
    return result(element, coefficients);
}
