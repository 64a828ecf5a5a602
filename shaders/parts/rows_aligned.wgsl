// The functions of rows_fused for rows that begin at vec4s.

#import params, vectors

const same_columns: bool = true; // at the same position in any row, an invocation has the same ones
const paired_columns: bool = paired_records;

// The parameters of a vec4's columns, from element `first` on; past the row's end, those of its last vec4.
fn params_of(first: u32, vec4_index: u32, misalignment: u32) -> Params {
    if !has_params { return neutral_params(); }
    return load_params(first / 4u + min(vec4_index, uniforms.row_vec4s - 1u));
}

// Stores a vector that is in the row.
fn store_in_row(vector: u32, outputs: VectorOutputs, columns: vec4<u32>, end: u32) {
    store_vector_outputs(vector, outputs);
}
