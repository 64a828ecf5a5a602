// Sums that the elementwise pass adds up itself, from few partial sums: a record of each channel in each split.

#import body, records

fn sums_of_channel(channel: u32) -> Accumulator {
    var sums = Accumulator();
    for (var split = 0u; split < uniforms.partial_count; split++) {
        let index = uniforms.partials + split * uniforms.channels + channel;
        sums = merge(sums, accumulator_of(splat(load_workspace(index))));
    }
    return sums;
}

// The same of four channels, and writes their results.
fn store_results_of_channels(vec4_index: u32, scalars: Scalars) {
    if vec4_index >= (uniforms.channels + 3u) / 4u { return; }
    // Past the last channel, the last one stands in.
    let channel = min(vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.channels - 1u));
    var sums = Accumulator();
    for (var split = 0u; split < uniforms.partial_count; split++) {
        let first = uniforms.partials + split * uniforms.channels;
        sums = merge(sums, accumulator_of(load_records(vec4(first) + channel)));
    }
    store_results(vec4_index, sums, vec2(0u, min(4u, uniforms.channels - 4u * vec4_index)), scalars);
}
