// The parameters' copies in the workspace, which pack_params.wgsl wrote.

// Loads four elements of the parameter of a bit of `copied_params`.
fn copied_param(bit: u32, neutral: real4, vec4_index: u32) -> real4 {
    if (copied_params & bit) == 0u { return neutral; }
    let before = countOneBits(copied_params & (bit - 1u));
    return load_workspace(uniforms.copies + before * ((uniforms.parameters + 3u) / 4u) + vec4_index);
}
