// The gradients of bias and ReLU:
//
// diff_src[n, c, p] = diff_dst[n, c, p] where dst[n, c, p] > 0, else 0
// diff_bias[c] = Σ over n, p of diff_src[n, c, p]
//
// One workgroup for each channel.

override CHANNELS: u32;
override AREA: u32; // elements of a channel of an image

@group(0) @binding(0) var<storage, read> dst: array<f32>; // [N, CHANNELS, AREA]
@group(0) @binding(1) var<storage, read> diff_dst: array<f32>; // [N, CHANNELS, AREA]
@group(0) @binding(2) var<storage, read_write> diff_src: array<f32>; // [N, CHANNELS, AREA]
@group(0) @binding(3) var<storage, read_write> diff_bias: array<f32>; // [CHANNELS]

var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) local: u32) {
    let c = group.x;
    let terms = arrayLength(&dst) / CHANNELS;
    var sum = 0.0;
    for (var term = local; term < terms; term += 64u) {
        let index = (term / AREA * CHANNELS + c) * AREA + term % AREA;
        let diff = select(diff_dst[index], 0.0, dst[index] <= 0.0);
        diff_src[index] = diff;
        sum += diff;
    }
    sums[local] = sum;
    workgroupBarrier();
    if local == 0u {
        for (var other = 1u; other < 64u; other++) {
            sum += sums[other];
        }
        diff_bias[c] = sum;
    }
}
