// The whole gradient or forward pass in one dispatch, channels last, for small tensors whose channels are the last axis
// and fill whole vectors (NXC, rank 2). For the gradient of batch norm diff_src =
// r · ((gamma · diff_dst − a) − x̂ · b), with a = gamma · Σ diff_dst / m and b = gamma · Σ diff_dst · x̂ / m. A forward
// pass computes the statistics of src and writes dst by them.
//
// An invocation owns a vector of channels in every `thread_rows`-th row and adds up its elements. The invocations of
// a workgroup that own the same channels add up their sums in a fixed order. Then each writes diff_src or
// dst where it read.
//
// Bindings of a gradient: src, diff_dst, statistics, parameters (optional), mask read; diff_src written, or diff_dst in
// place, and with a mask diff_residual; gradients of parameters (optional) written.
// Bindings of a forward pass: src, parameters (optional) read; running_mean, running_variance (optional) read and
// written; dst, statistics written.
// Moves 2 n elements in (n forward), n out, where the second reading is cached; else twice as many in.

#import tiles, threads, body, params, scalars, vectors, thread_rows_sum

const summing_invocations: u32 = workgroup_size;

@compute @workgroup_size(workgroup_size)
fn channels_last_fused(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let width = uniforms.channels / vector_elements;
    let thread_rows = team_of(workgroup_size, uniforms.threads_per_row);
    let thread_row = team_of(local, uniforms.threads_per_row);
    let own = tile_of(workgroup) * uniforms.threads_per_row + thread_of(local, uniforms.threads_per_row);
    // Past the last vector of channels there are no rows to read, and the last vector's statistics stand in.
    let column = min(own, width - 1u);
    let rows = select(uniforms.rows, 0u, own >= width);
    var coefficients: array<Coefficients, vector_vec4s>;
    var sums: array<Accumulator, vector_vec4s>;
    for (var k = 0u; k < vector_vec4s; k++) {
        let vec4_index = column * vector_vec4s + k;
        coefficients[k] = with_params(statistics_of(vec4_index, uniforms.epsilon), load_params(vec4_index));
        sums[k] = Accumulator();
    }

    // In blocks, so that the rounding errors of equal terms do not pile up.
    for (var start = thread_row; start < rows; start += block_rows * thread_rows) {
        let end = min(rows, start + block_rows * thread_rows);
        var blocks = array<Block, vector_vec4s>();
        var first = VectorInputs();
        if in_blocks { first = load_vector_inputs(start * width + column); }
        for (var k = 0u; k < vector_vec4s; k++) {
            blocks[k] = begin(first[k], coefficients[k]);
        }
        for (var row = start; row < end; row += thread_rows) {
            var inputs = load_vector_inputs(row * width + column);
            for (var k = 0u; k < vector_vec4s; k++) {
                let element = element_of(inputs[k], coefficients[k]);
                blocks[k] = accumulate(blocks[k], element, coefficients[k], vec4(true));
            }
        }
        for (var k = 0u; k < vector_vec4s; k++) {
            sums[k] = end_block(sums[k], blocks[k]);
        }
    }

    for (var k = 0u; k < vector_vec4s; k++) {
        let vec4_index = column * vector_vec4s + k;
        let total = sum_of_thread_rows(local, uniforms.threads_per_row, sums[k]);
        if thread_row == 0u && own < width { store_results(vec4_index, total, 4u, scalars()); }
        coefficients[k] = with_sums(coefficients[k], total, scalars());
    }
    for (var row = thread_row; row < rows; row += thread_rows) {
        let vector = row * width + column;
        var inputs = load_vector_inputs(vector);
        var outputs = VectorOutputs();
        for (var k = 0u; k < vector_vec4s; k++) {
            outputs[k] = result(element_of(inputs[k], coefficients[k]), coefficients[k]);
        }
        store_vector_outputs(vector, outputs);
    }
}
