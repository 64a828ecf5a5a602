// The gradient of a dense layer's src:
//
// diff_src[n, i] = Σ over o of diff_dst[n, o] · weight[o, i]
//
// One invocation for each element of diff_src.

override INPUTS: u32;
override OUTPUTS: u32;

@group(0) @binding(0) var<storage, read> diff_dst: array<f32>; // [N, OUTPUTS]
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [OUTPUTS, INPUTS]
@group(0) @binding(2) var<storage, read_write> diff_src: array<f32>; // [N, INPUTS]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&diff_src) {
        return;
    }
    let i = index % INPUTS;
    let n = index / INPUTS;
    var sum = 0.0;
    for (var o = 0u; o < OUTPUTS; o++) {
        sum += diff_dst[n * OUTPUTS + o] * weight[o * INPUTS + i];
    }
    diff_src[index] = sum;
}
