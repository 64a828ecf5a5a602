// Shared by the kernels that add up a plane, or a chunk of it.

#import body, plane_edges

// Adds a block of vectors to the sums: those before `end` of `block_vectors` vectors, `threads_per_plane` apart from
// `first` on.
fn add_block(sums: Accumulator, range: vec2<u32>, first: u32, end: u32, coefficients: Coefficients) -> Accumulator {
    var block = Block();
    for (var b = 0u; b < block_vectors; b++) {
        let own = first + b * uniforms.threads_per_plane;
        let vector = min(own, end - 1u);
        var inputs = load_vector_inputs(vector);
        if b == 0u { block = begin(first_inside(range, vector, inputs), coefficients); }
        for (var k = 0u; k < vector_vec4s; k++) {
            let element = element_of(inputs[k], coefficients);
            let inside = inside_of(range, vector * vector_vec4s + k) & vec4(b == 0u || own < end);
            block = accumulate(block, element, coefficients, inside);
        }
    }
    return end_block(sums, block);
}
