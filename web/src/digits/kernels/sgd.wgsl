// Stochastic gradient descent with momentum:
//
// velocity = MOMENTUM · velocity + gradient
// value = value − rate · velocity
//
// One invocation for each element of a parameter.

const MOMENTUM = 0.9;

@group(0) @binding(0) var<storage, read> rate: array<f32>; // [1]
@group(0) @binding(1) var<storage, read> gradient: array<f32>;
@group(0) @binding(2) var<storage, read_write> velocity: array<f32>;
@group(0) @binding(3) var<storage, read_write> value: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if index >= arrayLength(&value) {
        return;
    }
    let changed = MOMENTUM * velocity[index] + gradient[index];
    velocity[index] = changed;
    value[index] -= rate[0] * changed;
}
