// The elementwise pass over some planes, each shared by a team of invocations.

#import body, channels_first, plane_apply, threads

// Writes the planes from `first` to `end`, or one chunk of a plane.
fn apply_to_planes(local: u32, first: u32, end: u32, chunk: u32) {
    let thread = thread_of(local, uniforms.threads_per_plane);
    let place = team_of(local, uniforms.threads_per_plane);
    let planes_at_once = team_of(workgroup_size, uniforms.threads_per_plane);
    for (var plane = first + place; plane < end; plane += planes_at_once) {
        let plane_start = plane * uniforms.inner - uniforms.window;
        let own = plane_coefficients(plane);
        var next = own;
        if !vector_aligned && !(branches && !vec4_aligned) { next = plane_coefficients(plane + 1u); }
        apply_to_plane(plane, own, next, plane_start, chunk_range(plane, chunk), thread);
    }
}

// The coefficients of a plane. Past the last one nothing is written, so any will do.
fn plane_coefficients(plane: u32) -> Coefficients {
    let own = min(plane, uniforms.planes - 1u);
    return coefficients_by(record_of_plane(own), means_of_plane(own));
}
