// Parameters and record of a single channel, by the indices of its parameters and of its statistics.

#import body, params

fn params_of(parameter: u32) -> Params {
    return splat_params(load_params(parameter / 4u), parameter % 4u);
}

// A channel's record, from its statistics and parameters in tensors.
fn record_of_channel(statistic: u32, parameter: u32, epsilon: real) -> real4 {
    let coefficients = with_params(statistics_of(statistic / 4u, epsilon), params_of(parameter));
    return record_of_coefficients(coefficients, statistic % 4u);
}
