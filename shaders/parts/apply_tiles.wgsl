// The tiles of a pass that reads what the reduction has just read. `backwards`, it begins with what was read
// last, which a cache may still hold.

// Behind the last one for a workgroup without a tile.
fn apply_tile_of(workgroup: vec3<u32>) -> u32 {
    let index = tile_of(workgroup);
    if index >= uniforms.end_tile - uniforms.first_tile { return uniforms.end_tile; }
    return select(uniforms.first_tile + index, uniforms.end_tile - 1u - index, backwards);
}
