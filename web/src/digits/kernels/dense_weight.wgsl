// The gradients of a dense layer's weight and bias:
//
// diff_weight[o, i] = Σ over n of diff_dst[n, o] · src[n, i]
// diff_bias[o] = Σ over n of diff_dst[n, o]
//
// One invocation for each weight; those of the first input take care of the biases as well.

override INPUTS: u32;
override OUTPUTS: u32;

@group(0) @binding(0) var<storage, read> src: array<f32>; // [N, INPUTS]
@group(0) @binding(1) var<storage, read> diff_dst: array<f32>; // [N, OUTPUTS]
@group(0) @binding(2) var<storage, read_write> diff_weight: array<f32>; // [OUTPUTS, INPUTS]
@group(0) @binding(3) var<storage, read_write> diff_bias: array<f32>; // [OUTPUTS]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&diff_weight) {
        return;
    }
    let i = index % INPUTS;
    let o = index / INPUTS;
    let images = arrayLength(&diff_dst) / OUTPUTS;
    var weight = 0.0;
    var bias = 0.0;
    for (var n = 0u; n < images; n++) {
        let diff = diff_dst[n * OUTPUTS + o];
        weight += diff * src[n * INPUTS + i];
        bias += diff;
    }
    diff_weight[index] = weight;
    if i == 0u {
        diff_bias[o] = bias;
    }
}
