// Writes the words of diff_src that two rows share, of the halves that the fused kernel over rows of an odd number
// of 16-bit elements left in the workspace: the last element of row 2p, the first one of row 2p + 1. Behind the last
// row of an odd number of them is padding, which becomes 0.
//
// Bindings: workspace read; diff_src written.
// Moves an element of every row in and out.

@compute @workgroup_size(workgroup_size)
fn join_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let pair = uniforms.first_pair + tile_of(workgroup) * workgroup_size + local;
    if pair >= uniforms.end_pair { return; }

    let row = 2u * pair;
    let last = load_workspace(uniforms.halves + row).x;
    var first = real(0.0);
    if row + 1u < uniforms.rows { first = load_workspace(uniforms.halves + row + 1u).x; }
    let element = (row + 1u) * uniforms.columns - 1u - uniforms.window;
    let upper = element % 4u == 2u;
    store_some_diff_src(element / 4u, real4(last, first, last, first), vec4(!upper, !upper, upper, upper));
}
