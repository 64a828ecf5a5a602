// The elementwise pass, channels first. A gradient writes diff_src, from src, diff_dst and the means of the sums that
// finish.wgsl wrote. For batch norm diff_src = r · ((gamma · diff_dst − a) − x̂ · b), with a = gamma · Σ diff_dst / m
// and b = gamma · Σ diff_dst · x̂ / m. With constant statistics a and b are 0, and src is bound only for an activation.
// Where there are few partial sums, it adds them up itself (`adds_up`), and its first tiles write the gradients of
// parameters, so that there is no finish.wgsl.
// A forward pass writes dst, from src and the record that finish.wgsl or pack_statistics.wgsl wrote for each channel.
//
// A channel's elements are planes of `inner` consecutive elements. A workgroup does a tile: `tile_planes` planes, or
// one chunk of one plane. A team of `threads_per_plane` invocations shares a plane. A vector is stored by the team in
// whose chunk it begins. Where a plane ends inside a vector, the elements after its end use the next plane's
// coefficients.
//
// Bindings: src (for a gradient by batch statistics or with an activation, and for a forward pass), diff_dst and mask
// (for a gradient), residual (for a forward pass) read; workspace read, or statistics and parameters, unless they are
// `recorded`, or parameters, if records are `of_statistics`; diff_src written, or diff_dst in place, and with a mask
// diff_residual, gradients of parameters (`adds_up`); or dst written.
// Moves 2 n elements in (n with constant statistics, or forward), n out; n more in for a residual; n / 32 words in and
// n more out for a mask.

#import tiles, threads, body, records, scalars, channels_first, plane_apply, channel_records, few_partials
#import grouped_channels, one_channel

@compute @workgroup_size(workgroup_size)
fn channels_first_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = thread_of(local, uniforms.threads_per_plane);
    let place = team_of(local, uniforms.threads_per_plane);
    let planes_at_once = team_of(workgroup_size, uniforms.threads_per_plane);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    // The first tiles write the results of all channels.
    if adds_up { store_results_of_channels(tile * workgroup_size + local, scalars()); }

    let chunk = tile % uniforms.chunks;
    let plane_tile = tile / uniforms.chunks;
    let plane_end = min(uniforms.planes, (plane_tile + 1u) * uniforms.tile_planes);
    for (var plane = plane_tile * uniforms.tile_planes + place; plane < plane_end; plane += planes_at_once) {
        let plane_start = plane * uniforms.inner - uniforms.window;
        let own = plane_coefficients(plane);
        var next = own;
        if !vector_aligned && !(branches && !vec4_aligned) { next = plane_coefficients(plane + 1u); }
        apply_to_plane(plane, own, next, plane_start, chunk_range(plane, chunk), thread);
    }
}

// The coefficients of the plane's channel. Past the last plane nothing is written, so any will do.
fn plane_coefficients(plane: u32) -> Coefficients {
    let channel = channel_of(min(plane, uniforms.planes - 1u));
    var coefficients = Coefficients();
    if of_statistics {
        // The record is that of the group: the channel has the parameters.
        let known = coefficients_of(splat(load_workspace(uniforms.stats + statistic_of(channel))));
        let own = with_params(known, params_of(parameter_of(channel)));
        coefficients = coefficients_of(splat(record_of_coefficients(own, 0u)));
    } else {
        coefficients = coefficients_of(splat(record_before_sums(channel)));
    }
    if adds_up { return with_sums(coefficients, sums_of_channel(channel), scalars()); }
    if !has_means { return coefficients; }
    return combine(coefficients, splat(load_workspace(uniforms.means + channel)));
}

fn outputs_of(inputs: Inputs, coefficients: Coefficients) -> Outputs {
    let element = element_of(inputs, coefficients);
    if !(has_means || adds_up) { return result_of_constants(element, coefficients); }
    return result(element, coefficients);
}
