// The record of partial sum number `partial` of each of four channels: split by split, and in a split by outer index
// and column of a channel.

fn records_of(channel: vec4<u32>, partial: u32) -> vec4<u32> {
    return channel * uniforms.channel_stride + vec4(offset_of(partial));
}

fn offset_of(partial: u32) -> u32 {
    if plain { return partial * uniforms.partial_stride; }
    let split_partials = uniforms.repeats * uniforms.inner;
    let split = partial / split_partials;
    let k = partial % split_partials / uniforms.inner;
    return split * uniforms.partial_stride + k * uniforms.channels * uniforms.inner + partial % uniforms.inner;
}
