// Says which channels share statistics and parameters, where those that do are not side by side: channels have axes, of
// which `statistics_axes` and `parameter_axes` are those that statistics and parameters vary along.

#import axes

fn parameter_of(channel: u32) -> u32 {
    return kept_index(uniforms.parameter_axes, channel);
}

fn statistic_of(channel: u32) -> u32 {
    return kept_index(uniforms.statistics_axes, channel);
}

// Channel k of those that share a statistic, or a parameter.
fn channel_of_statistic(statistic: u32, k: u32) -> u32 {
    return join_axes(uniforms.statistics_axes, statistic, k);
}

fn channel_of_parameter(parameter: u32, k: u32) -> u32 {
    return join_axes(uniforms.parameter_axes, parameter, k);
}
