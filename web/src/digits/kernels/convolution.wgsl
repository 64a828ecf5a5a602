// A 3×3 convolution with padding 1:
//
// dst[n, o, y, x] = Σ over c, i, j of src[n, c, y · STRIDE + i − 1, x · STRIDE + j − 1] · weight[o, c, i, j]
//
// One invocation for each element of dst.

override SRC_CHANNELS: u32;
override SRC_SIDE: u32;
override DST_CHANNELS: u32;
override DST_SIDE: u32;
override STRIDE: u32;

@group(0) @binding(0) var<storage, read> src: array<f32>; // [N, SRC_CHANNELS, SRC_SIDE, SRC_SIDE]
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [DST_CHANNELS, SRC_CHANNELS, 3, 3]
@group(0) @binding(2) var<storage, read_write> dst: array<f32>; // [N, DST_CHANNELS, DST_SIDE, DST_SIDE]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&dst) {
        return;
    }
    let x = index % DST_SIDE;
    let y = index / DST_SIDE % DST_SIDE;
    let o = index / (DST_SIDE * DST_SIDE) % DST_CHANNELS;
    let n = index / (DST_SIDE * DST_SIDE * DST_CHANNELS);
    var sum = 0.0;
    for (var i = 0u; i < 3u; i++) {
        for (var j = 0u; j < 3u; j++) {
            // Before the first row or column these wrap around, so one comparison finds all that is outside.
            let src_y = y * STRIDE + i - 1u;
            let src_x = x * STRIDE + j - 1u;
            if src_y < SRC_SIDE && src_x < SRC_SIDE {
                for (var c = 0u; c < SRC_CHANNELS; c++) {
                    let src_index = ((n * SRC_CHANNELS + c) * SRC_SIDE + src_y) * SRC_SIDE + src_x;
                    sum += src[src_index] * weight[((o * SRC_CHANNELS + c) * 3u + i) * 3u + j];
                }
            }
        }
    }
    dst[index] = sum;
}
