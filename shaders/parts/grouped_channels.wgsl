// Says which channels share statistics and parameters. The channels are those of all samples. Groups of
// `group_channels` neighbouring channels share statistics; gamma and beta belong to a channel's position among the
// `parameters` channels of a sample. Where each channel has its own, `group_channels` is 1, and there is one sample.

fn parameter_of(channel: u32) -> u32 {
    return channel % uniforms.parameters;
}

fn statistic_of(channel: u32) -> u32 {
    return channel / uniforms.group_channels;
}

// Channel k of those that share a statistic, or a parameter.
fn channel_of_statistic(statistic: u32, k: u32) -> u32 {
    return statistic * uniforms.group_channels + k;
}

fn channel_of_parameter(parameter: u32, k: u32) -> u32 {
    return k * uniforms.parameters + parameter;
}
