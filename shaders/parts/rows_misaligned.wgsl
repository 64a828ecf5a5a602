// What rows_fused does where rows do not begin at vec4s. A vector is one vec4.
//
// Needs: records, params, rows, vectors.

const same_columns: bool = false; // of an invocation and of others in its place of other rows

// gamma and beta of a vec4's columns, each put together from two vec4s; 0 behind the row's end and before its start,
// where a buffer may hold anything.
fn params_of(vec4_index: u32, misalignment: u32) -> Params {
    if !(scaled || offset) { return Params(real4(1.0), real4()); }
    let last = (uniforms.columns - 1u) / 4u;
    let before = load_params(min(max(vec4_index, 1u) - 1u, last));
    let own = load_params(min(vec4_index, last));
    let inside = columns_of(vec4_index, misalignment) < vec4(uniforms.columns);
    return Params(
        select(real4(), behind(before.gamma, own.gamma, misalignment), inside),
        select(real4(), behind(before.beta, own.beta, misalignment), inside),
    );
}

// The four elements that begin `misalignment` elements before a vec4, from the vec4 before it and this one.
fn behind(before: real4, own: real4, misalignment: u32) -> real4 {
    let by_odd = misalignment % 2u == 1u;
    let near = select(own, real4(before.w, own.xyz), by_odd);
    let far = select(before.zw, before.yz, by_odd);
    return select(near, real4(far, near.xy), misalignment >= 2u);
}

// Stores the elements of a vector that are in the row, below `end`, and what they are sums of; the others are its
// neighbours' or nobody's.
fn store_in_row(vector: u32, value: Vector, sum: Vector, columns: vec4<u32>, end: u32) {
    store_some_result(vector, value[0], columns < vec4(end));
    store_some_sum(vector, sum[0], columns < vec4(end));
}
