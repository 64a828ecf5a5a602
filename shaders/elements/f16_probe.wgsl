// Rounds numbers to f16, for a comparison with what they must become.
//
// Needs one invocation for four numbers. Bindings: the numbers, and their f16.

@group(0) @binding(0) var<storage, read_write> numbers: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> rounded: array<vec2<u32>>;

@compute @workgroup_size(workgroup_size)
fn probe(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&rounded) {
        rounded[id.x] = encode_f16(numbers[id.x]);
    }
}
