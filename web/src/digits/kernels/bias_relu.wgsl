// A bias for each channel, and ReLU:
//
// dst[n, c, p] = max(src[n, c, p] + bias[c], 0)
//
// One invocation for each element.

override CHANNELS: u32;
override AREA: u32; // elements of a channel of an image

@group(0) @binding(0) var<storage, read> src: array<f32>; // [N, CHANNELS, AREA]
@group(0) @binding(1) var<storage, read> bias: array<f32>; // [CHANNELS]
@group(0) @binding(2) var<storage, read_write> dst: array<f32>; // [N, CHANNELS, AREA]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&dst) {
        return;
    }
    let sum = src[index] + bias[index / AREA % CHANNELS];
    dst[index] = select(sum, 0.0, sum < 0.0); // unlike max, it keeps NaN
}
