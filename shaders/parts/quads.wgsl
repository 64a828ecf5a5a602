// How runs and tensors lie in quads. Overrides pick the code, since on a software adapter a branch that
// is not taken costs as much as one that is.

// A quad's elements that are in the range, and 0 for the others: a run's neighbours in its first and last quad.
fn only_inside(range: vec2<u32>, quad: u32, value: real4) -> real4 {
    if packet_aligned { return value; }
    if quad_aligned {
        let element = 4u * quad;
        return select(real4(), value, element >= range.x && element < range.y);
    }
    let elements = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
    return select(real4(), value, (elements >= vec4(range.x)) & (elements < vec4(range.y)));
}
