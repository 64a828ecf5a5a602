// Shared by the kernels that write the outputs of a plane, or of a chunk of it. A vector is stored by the team in whose
// range it begins; where the plane ends inside a vector, the elements after it belong to the next plane in storage. Only
// such a vector computes theirs, where a branch that is not taken costs nothing (`branches`). The kernel defines
// `plane_coefficients`, those of a plane, and `outputs_of`.

#import body, vectors

// Writes the vectors that begin in `range`, every `threads_per_plane`-th from `thread` on, of the plane that begins at
// `plane_start`.
fn apply_to_plane(plane: u32, own: Coefficients, next: Coefficients, plane_start: u32, range: vec2<u32>, thread: u32) {
    let plane_end = plane_start + uniforms.inner;
    let end = (range.y + vector_elements - 1u) / vector_elements;
    let first = (range.x + vector_elements - 1u) / vector_elements;
    for (var vector = first + thread; vector < end; vector += uniforms.threads_per_plane) {
        var inputs = load_vector_inputs(vector);
        var outputs = VectorOutputs();
        for (var k = 0u; k < vector_vec4s; k++) {
            let elements = vec4(vector * vector_elements + 4u * k) + vec4(0u, 1u, 2u, 3u);
            var coefficients = own;
            // The first vec4 of a vector is in the plane where the vector begins.
            if vec4_aligned && k > 0u { coefficients = select_coefficients(own, next, vec4(elements.x >= plane_end)); }
            var value = outputs_of(inputs[k], coefficients);
            if narrow {
                // By `select`: with a store to an element of a vector here, FXC takes minutes, or gives up.
                for (var i = 0u; i < 4u; i++) {
                    let other = plane_coefficients(plane + (elements[i] - plane_start) / uniforms.inner);
                    value = select_outputs(value, outputs_of(inputs[k], other), vec4(i) == vec4(0u, 1u, 2u, 3u));
                }
            } else if !vec4_aligned && (!branches || elements.w >= plane_end) {
                var other = next;
                if branches { other = plane_coefficients(plane + 1u); }
                value = select_outputs(value, outputs_of(inputs[k], other), elements >= vec4(plane_end));
            }
            outputs[k] = value;
        }
        if ends_with_vector {
            store_vector_outputs(vector, outputs);
        } else {
            let left = uniforms.length - vector * vector_elements;
            store_first_vector_outputs(vector, outputs, min(vector_elements, left));
        }
    }
}
