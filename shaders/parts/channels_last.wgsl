// Shared by the channels-last kernels: says which vectors of a row an invocation owns. It owns `column_vectors` of
// them, a constant of the text: a compiler keeps an array in registers if it is as long as the loops over it.

#import axes, positions, vectors

fn first_column(tile: u32, thread: u32) -> u32 {
    let width = uniforms.threads_per_row * column_vectors;
    return uniforms.first_vector + tile % uniforms.column_tiles * width + thread;
}

// The p-th of the invocation's vectors of columns; past the end, the last stands in and nothing is written.
fn column_of(first: u32, p: u32) -> u32 {
    return min(first + p * uniforms.threads_per_row, uniforms.end_vector - 1u);
}

// The position of a vector's first element in its batch.
fn position_of(column: u32) -> Position {
    return position_at(vector_elements * column);
}

// The channels of four columns of a batch from a position on; moves the position past them.
fn channels_of(batch: u32, position: ptr<function, Position>) -> vec4<u32> {
    return vec4(batch * uniforms.row_channels) + four_channels(position);
}

// A row's first vector, relative to the window.
fn row_start_of(batch: u32, row: u32) -> u32 {
    return row_of(batch, row) * uniforms.width_vectors - uniforms.window / vector_elements;
}

// A row's vector in the p-th column; past the tensor's end, the tensor's last vector.
fn vector_of(row_start: u32, first: u32, p: u32) -> u32 {
    let vector = row_start + column_of(first, p);
    if complete { return vector; }
    return min(vector, (uniforms.length - 1u) / vector_elements);
}

// Which of a vec4's elements are in the tensor. A vec4 may be so far past its end that its elements' indices
// would wrap.
fn inside_tensor(vec4_index: u32) -> vec4<bool> {
    if complete { return vec4(true); }
    let count = select(uniforms.length - 4u * vec4_index, 0u, vec4_index > (uniforms.length - 1u) / 4u);
    return vec4(0u, 1u, 2u, 3u) < vec4(count);
}

// Writes a row's vector in the p-th column, as far as it is in the tensor.
fn store_in_row(row_start: u32, first: u32, p: u32, outputs: VectorOutputs) {
    let vector = row_start + column_of(first, p);
    if first + p * uniforms.threads_per_row < uniforms.end_vector {
        if complete {
            store_vector_outputs(vector, outputs);
        } else if vector <= (uniforms.length - 1u) / vector_elements {
            if whole {
                store_vector_outputs(vector, outputs);
            } else {
                let left = uniforms.length - vector * vector_elements;
                store_first_vector_outputs(vector, outputs, min(vector_elements, left));
            }
        }
    }
}

fn row_of(batch: u32, row: u32) -> u32 {
    if !general { return row; }
    if in_one_piece { return batch * uniforms.rows + row; }
    return join_axes(uniforms.kept_axes, batch, row);
}
