// The elementwise pass over some planes of whole vectors. All invocations share the vectors, so that none is idle, and
// each loads `vectors_at_once` of them before it uses the first. The coefficients of each plane are made once.

#import channels_first, records, vectors

var<workgroup> plane_records: array<real4, workgroup_size>;
var<workgroup> plane_means: array<real4, workgroup_size>;

// Writes the planes from `first` to `end`, at most `workgroup_size`, or one chunk of a plane.
fn apply_to_planes(local: u32, first: u32, end: u32, chunk: u32) {
    if local < end - first {
        let means = means_of_plane(first + local);
        plane_records[local] = record_of_plane(first + local);
        plane_means[local] = real4(means.x.x, means.y.x, means.z.x, means.w.x);
    }
    workgroupBarrier();

    let start = chunk_range(first, chunk).x;
    let end_vector = chunk_range(end - 1u, chunk).y / vector_elements;
    let step = vectors_at_once * workgroup_size;
    let inverse = 1.0 / f32(uniforms.inner);
    for (var vector = start / vector_elements + local; vector < end_vector; vector += step) {
        var inputs = array<VectorInputs, vectors_at_once>();
        for (var q = 0u; q < vectors_at_once; q++) {
            inputs[q] = load_vector_inputs(min(vector + q * workgroup_size, end_vector - 1u));
        }
        for (var q = 0u; q < vectors_at_once; q++) {
            let own = vector + q * workgroup_size;
            if own < end_vector {
                // Exact: a tile has fewer than 2²¹ elements.
                let plane = u32((f32(own * vector_elements - start) + 2.0) * inverse);
                let coefficients = coefficients_by(plane_records[plane], splat(plane_means[plane]));
                var outputs = VectorOutputs();
                for (var k = 0u; k < vector_vec4s; k++) {
                    outputs[k] = outputs_of(inputs[q][k], coefficients);
                }
                store_vector_outputs(own, outputs);
            }
        }
    }
}
