// The reduction, channels first (NCX): writes partial sums of each channel, for the gradient of batch norm Σ diff_dst
// and Σ diff_dst · x̂. A forward pass writes partial statistics instead; over rows it treats each row as a channel.
//
// A channel's elements are planes of `inner` consecutive elements. A workgroup does a tile, `tile_planes` planes of one
// channel or one chunk of one plane, and writes workspace[partials + split · channels + c] = (Σ, Σ·x̂, 0, 0).
// A team of `threads_per_plane` invocations shares a plane.
// Unless records of the channels are there (`recorded`), a channel's first tile writes its own, for the elementwise pass.
// With constant statistics the gradient does not need the sums: where planes begin at vectors, the same pass writes
// diff_src = gamma · r · diff_dst.
//
// Bindings: src, diff_dst and mask (for a gradient) or residual (optional, for a forward pass over rows), statistics
// and parameters (unless `recorded`) read; workspace read and written; diff_src and with a mask diff_residual
// (optional) written, or diff_dst in place. No text writes dst, the result of a forward pass.
// Moves 2 n elements in (n forward, 2 n with residual), and n out if diff_src is bound.

#import tiles, threads, body, records, vectors, channels_first, plane_reduce, team_sum, channel_records

const team_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn channels_first_reduce(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = thread_of(local, uniforms.threads_per_plane);
    let place = team_of(local, uniforms.threads_per_plane);
    let planes_at_once = team_of(workgroup_size, uniforms.threads_per_plane);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let chunk = tile % uniforms.chunks;
    let channel = (tile / uniforms.chunks) % uniforms.channels;
    let outer_tile = tile / uniforms.chunks / uniforms.channels;
    let record = record_before_sums(channel);
    let coefficients = coefficients_of(splat(record));

    var sums = Accumulator();
    let outer_end = min(uniforms.outer, (outer_tile + 1u) * uniforms.tile_planes);
    for (var n = outer_tile * uniforms.tile_planes + place; n < outer_end; n += planes_at_once) {
        let plane = plane_of(n, channel);
        let range = chunk_range(plane, chunk);
        let end = (range.y + vector_elements - 1u) / vector_elements;
        for (var vector = range.x / vector_elements + thread; vector < end; vector += block_vectors * uniforms.threads_per_plane) {
            sums = add_block(sums, range, vector, end, coefficients);
            store_in_passing(vector, coefficients);
        }
    }

    let total = team_sum(local, workgroup_size, 0u, horizontal_sum(sums));
    if local == 0u {
        let split = outer_tile * uniforms.chunks + chunk;
        let to = uniforms.partials + split * uniforms.channels + channel;
        store_workspace(to, words_of_total(total));
        if !recorded && split == 0u { store_workspace(uniforms.stats + channel, record); }
    }
}

// Writes a vector's outputs where mean and variance are constants. They need the coefficients and the elements, which
// are loaded again, but no sums.
fn store_in_passing(vector: u32, coefficients: Coefficients) {
    var inputs = load_vector_inputs(vector);
    var outputs = VectorOutputs();
    for (var k = 0u; k < vector_vec4s; k++) {
        outputs[k] = result_of_constants(element_of(inputs[k], coefficients), coefficients);
    }
    store_vector_outputs(vector, outputs);
}
