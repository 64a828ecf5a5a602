// For columns that are channels, whose statistics and parameters are read from tensors. A reduction leaves records of
// them.

#import body, channel_records, params, positions, records

// The coefficients of four columns' channels before their sums: those of a record.
fn given_of_channels(batch: u32, column: u32) -> Coefficients {
    if columns_are_channels {
        let known = with_params(statistics_of(column / 4u, uniforms.epsilon), load_params(column / 4u));
        return coefficients_of(records_of_coefficients(known));
    }
    var position = position_at(column);
    let own = vec4(batch * uniforms.row_channels) + four_channels(&position);
    return coefficients_of(side_by_side(
        record_before_sums(own.x),
        record_before_sums(own.y),
        record_before_sums(own.z),
        record_before_sums(own.w),
    ));
}

// Writes the records of the channels of four columns, if these are their channels' first.
fn leave_records_of_channels(batch: u32, column: u32, coefficients: Coefficients) {
    for (var i = 0u; i < 4u; i++) {
        let own = column + i;
        if own < uniforms.row_channels * uniforms.inner && own % uniforms.inner == 0u {
            let channel = batch * uniforms.row_channels + own / uniforms.inner;
            store_workspace(uniforms.stats + channel, record_of_coefficients(coefficients, i));
        }
    }
}
