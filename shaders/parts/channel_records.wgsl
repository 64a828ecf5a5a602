// The record of a channel before its sums: from the workspace (`recorded`), or from its statistics and parameters.

#import one_channel, grouped_channels

fn record_before_sums(channel: u32) -> real4 {
    if recorded { return load_workspace(uniforms.stats + channel); }
    return record_of_channel(statistic_of(channel), parameter_of(channel), uniforms.epsilon);
}
