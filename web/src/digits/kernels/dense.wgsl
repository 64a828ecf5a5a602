// A dense layer:
//
// dst[n, o] = bias[o] + Σ over i of src[n, i] · weight[o, i]
//
// One invocation for each element of dst.

override INPUTS: u32;
override OUTPUTS: u32;

@group(0) @binding(0) var<storage, read> src: array<f32>; // [N, INPUTS]
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [OUTPUTS, INPUTS]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [OUTPUTS]
@group(0) @binding(3) var<storage, read_write> dst: array<f32>; // [N, OUTPUTS]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&dst) {
        return;
    }
    let o = index % OUTPUTS;
    let n = index / OUTPUTS;
    var sum = bias[o];
    for (var i = 0u; i < INPUTS; i++) {
        sum += src[n * INPUTS + i] * weight[o * INPUTS + i];
    }
    dst[index] = sum;
}
