// How runs and tensors lie in quads. Overrides pick the code, since on a software adapter a branch that
// is not taken costs as much as one that is.

override aligned: bool = false; // every run begins at a quad, in a kernel that moves packets at a packet

// Which of a quad's elements are in the range.
fn inside_range(quad: u32, range: vec2<u32>) -> vec4<bool> {
    let elements = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
    return (elements >= vec4(range.x)) & (elements < vec4(range.y));
}
