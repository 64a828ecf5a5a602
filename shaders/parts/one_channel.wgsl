// Parameters and record of a single channel, where statistics are those of groups of `group_channels` channels of a
// sample. Channel number `channel` of all samples has the statistics of its group, and gamma and beta by its position
// among the `parameters` channels of a sample. Elsewhere `group_channels` is 1, and there is one sample.

#import body, params, records

fn params_of(channel: u32) -> Params {
    return splat_params(load_params(channel % uniforms.parameters / 4u), channel % uniforms.parameters % 4u);
}

// A channel's record, from its statistics and parameters in tensors.
fn record_of_channel(channel: u32, epsilon: real) -> real4 {
    let group = channel / uniforms.group_channels;
    let coefficients = with_params(statistics_of(group / 4u, epsilon), params_of(channel));
    return record_of_coefficients(coefficients, group % 4u);
}
