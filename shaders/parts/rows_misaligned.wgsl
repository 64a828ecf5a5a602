// What rows_fused does where rows do not begin at vec4s. A vector is one vec4.
//
// Needs: rows, vectors.

const same_columns: bool = false; // of an invocation and of others in its place of other rows

// gamma of a vec4's columns, put together from two vec4s of gamma; 0 behind the row's end and before its start,
// where a buffer may hold anything.
fn gamma_of(vec4_index: u32, misalignment: u32) -> real4 {
    let last = (uniforms.columns - 1u) / 4u;
    let before = load_gamma(min(max(vec4_index, 1u) - 1u, last));
    let own = load_gamma(min(vec4_index, last));
    let by_odd = misalignment % 2u == 1u;
    let near = select(own, real4(before.w, own.xyz), by_odd);
    let far = select(before.zw, before.yz, by_odd);
    let columns = select(near, real4(far, near.xy), misalignment >= 2u);
    return select(real4(), columns, columns_of(vec4_index, misalignment) < vec4(uniforms.columns));
}

// Stores the elements of a vector that are in the row, below `end`; the others are its neighbours' or nobody's.
fn store_in_row(vector: u32, value: Vector, columns: vec4<u32>, end: u32) {
    store_some_diff_src(vector, value[0], columns < vec4(end));
}
