// The gradient of a convolution's weight:
//
// diff_weight[o, c, i, j] = Σ over n, y, x of diff_dst[n, o, y, x] · src[n, c, y · STRIDE + i − 1, x · STRIDE + j − 1]
//
// One invocation for each weight.

override SRC_CHANNELS: u32;
override SRC_SIDE: u32;
override DST_CHANNELS: u32;
override DST_SIDE: u32;
override STRIDE: u32;

@group(0) @binding(0) var<storage, read> src: array<f32>; // [N, SRC_CHANNELS, SRC_SIDE, SRC_SIDE]
@group(0) @binding(1) var<storage, read> diff_dst: array<f32>; // [N, DST_CHANNELS, DST_SIDE, DST_SIDE]
@group(0) @binding(2) var<storage, read_write> diff_weight: array<f32>; // [DST_CHANNELS, SRC_CHANNELS, 3, 3]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&diff_weight) {
        return;
    }
    let j = index % 3u;
    let i = index / 3u % 3u;
    let c = index / 9u % SRC_CHANNELS;
    let o = index / (9u * SRC_CHANNELS);
    let area = DST_SIDE * DST_SIDE;
    let images = arrayLength(&diff_dst) / (DST_CHANNELS * area);
    var sum = 0.0;
    for (var n = 0u; n < images; n++) {
        for (var pixel = 0u; pixel < area; pixel++) {
            let src_y = pixel / DST_SIDE * STRIDE + i - 1u; // wraps around before the first row
            let src_x = pixel % DST_SIDE * STRIDE + j - 1u;
            if src_y < SRC_SIDE && src_x < SRC_SIDE {
                let src_index = ((n * SRC_CHANNELS + c) * SRC_SIDE + src_y) * SRC_SIDE + src_x;
                sum += diff_dst[(n * DST_CHANNELS + o) * area + pixel] * src[src_index];
            }
        }
    }
    diff_weight[index] = sum;
}
