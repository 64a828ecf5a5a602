// The functions of rows_fused for rows that do not begin at vec4s. A vector is one vec4.

#import params, rows, vectors

const same_columns: bool = false; // at the same position in another row, an invocation may have others
const paired_columns: bool = false;

// The parameters of a vec4's columns, from element `first` on, each assembled from two vec4s; 0 after the row's end and
// before its start, where a buffer may hold anything.
fn params_of(first: u32, vec4_index: u32, misalignment: u32) -> Params {
    if !has_params { return neutral_params(); }
    // The first element's position, counted from the vec4 before the buffer.
    let start = first + 4u * vec4_index + 4u - misalignment;
    let last = (first + uniforms.columns - 1u) / 4u;
    let before = load_params(min(max(start / 4u, 1u) - 1u, last));
    let own = load_params(min(start / 4u, last));
    let inside = columns_of(vec4_index, misalignment) < vec4(uniforms.columns);
    return select_params(Params(), realigned_params(before, own, start % 4u), inside);
}

// Stores the elements of a vector that are in the row, below `end`; the others belong to its neighbours or to none.
fn store_in_row(vector: u32, outputs: VectorOutputs, columns: vec4<u32>, end: u32) {
    store_some_outputs(vector, outputs[0], columns < vec4(end));
}
