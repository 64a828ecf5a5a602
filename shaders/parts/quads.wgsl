// How runs and tensors lie in quads. Constants pick the code, since on a software adapter a branch that is not taken
// costs as much as one that is.

// Which of a quad's elements are in the range: a run's neighbours in its first and last quad are not.
fn inside_of(range: vec2<u32>, quad: u32) -> vec4<bool> {
    if packet_aligned { return vec4(true); }
    if quad_aligned {
        let element = 4u * quad;
        return vec4(element >= range.x && element < range.y);
    }
    let elements = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
    return (elements >= vec4(range.x)) & (elements < vec4(range.y));
}

// The first element of a packet that is in the range.
fn first_inside(range: vec2<u32>, packet: u32, value: Packet) -> real4 {
    var elements = value;
    let i = max(range.x, packet * packet_elements) - packet * packet_elements;
    return real4(elements[i / 4u][i % 4u]);
}
