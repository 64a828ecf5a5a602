// How planes lie in vec4s. Constants of the text pick the code, since on a software driver a branch that is not taken
// costs as much as one that is.

#import vectors

// Says which of a vec4's elements are in the range. The first and last vec4 of a plane may hold elements of its
// neighbours.
fn inside_of(range: vec2<u32>, vec4_index: u32) -> vec4<bool> {
    if vector_aligned { return vec4(true); }
    if vec4_aligned {
        let element = 4u * vec4_index;
        return vec4(element >= range.x && element < range.y);
    }
    let elements = vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u);
    return (elements >= vec4(range.x)) & (elements < vec4(range.y));
}

// The first element of a vector that is in the range.
fn first_inside(range: vec2<u32>, vector: u32, inputs: VectorInputs) -> Inputs {
    var vec4s = inputs;
    let i = max(range.x, vector * vector_elements) - vector * vector_elements;
    return splat_inputs(vec4s[i / 4u], i % 4u);
}
