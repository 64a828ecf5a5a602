// A workgroup does one tile. There may be more tiles than a dispatch may have workgroups along x, so the grid has two
// dimensions, and its last row of workgroups may reach past the last tile. There is no loop over tiles: around a
// barrier it would cost a software driver its registers.

fn tile_of(workgroup: vec3<u32>) -> u32 {
    return workgroup.y * uniforms.grid_width + workgroup.x;
}
