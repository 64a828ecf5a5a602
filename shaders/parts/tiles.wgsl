// A workgroup does one tile. There may be more tiles than a dispatch has workgroups along x, so they
// are folded into two dimensions, and the last row of workgroups may reach beyond the tiles. No loop over
// tiles: around a barrier it would cost a software driver its registers.

fn tile_of(workgroup: vec3<u32>) -> u32 {
    return workgroup.y * uniforms.grid_width + workgroup.x;
}
