// The gradient of a convolution's src. The element (y, x) of src is a term of dst's elements up to one row or column
// away, by the weight at i = y + 1 − dst_y · STRIDE and j = x + 1 − dst_x · STRIDE:
//
// diff_src[n, c, y, x] = Σ over o, dst_y, dst_x of diff_dst[n, o, dst_y, dst_x] · weight[o, c, i, j]
//
// One invocation for each element of diff_src.

override SRC_CHANNELS: u32;
override SRC_SIDE: u32;
override DST_CHANNELS: u32;
override DST_SIDE: u32;
override STRIDE: u32;

@group(0) @binding(0) var<storage, read> diff_dst: array<f32>; // [N, DST_CHANNELS, DST_SIDE, DST_SIDE]
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [DST_CHANNELS, SRC_CHANNELS, 3, 3]
@group(0) @binding(2) var<storage, read_write> diff_src: array<f32>; // [N, SRC_CHANNELS, SRC_SIDE, SRC_SIDE]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&diff_src) {
        return;
    }
    let x = index % SRC_SIDE;
    let y = index / SRC_SIDE % SRC_SIDE;
    let c = index / (SRC_SIDE * SRC_SIDE) % SRC_CHANNELS;
    let n = index / (SRC_SIDE * SRC_SIDE * SRC_CHANNELS);
    // The first row and column with i and j of at most 2: (y − 1) / STRIDE, rounded up.
    let first_y = (max(y, 1u) + STRIDE - 2u) / STRIDE;
    let first_x = (max(x, 1u) + STRIDE - 2u) / STRIDE;
    var sum = 0.0;
    for (var dst_y = first_y; dst_y < DST_SIDE && dst_y * STRIDE <= y + 1u; dst_y++) {
        for (var dst_x = first_x; dst_x < DST_SIDE && dst_x * STRIDE <= x + 1u; dst_x++) {
            let i = y + 1u - dst_y * STRIDE;
            let j = x + 1u - dst_x * STRIDE;
            for (var o = 0u; o < DST_CHANNELS; o++) {
                let dst_index = ((n * DST_CHANNELS + o) * DST_SIDE + dst_y) * DST_SIDE + dst_x;
                sum += diff_dst[dst_index] * weight[((o * SRC_CHANNELS + c) * 3u + i) * 3u + j];
            }
        }
    }
    diff_src[index] = sum;
}
