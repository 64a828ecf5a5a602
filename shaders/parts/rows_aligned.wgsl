// What rows_fused does where rows begin at vec4s.
//
// Needs: vectors.

const same_columns: bool = true; // an invocation's columns in every row

// gamma of a vec4's columns; of one behind the row's end, that of the last.
fn gamma_of(vec4_index: u32, misalignment: u32) -> real4 {
    return load_gamma(min(vec4_index, uniforms.row_vec4s - 1u));
}

// Stores a vector that is in the row.
fn store_in_row(vector: u32, value: Vector, columns: vec4<u32>, end: u32) {
    store_vector_diff_src(vector, value);
}
