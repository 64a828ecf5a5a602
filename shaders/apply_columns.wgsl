// diff_src = gamma · r · ((diff_dst − a) − x̂ · b) with a = Σ diff_dst / m and b = Σ diff_dst · x̂ / m,
// for tensors whose channels alternate quickly. The tensor is read as rows of `width` columns, as in
// the reduction by columns; an invocation owns four columns, keeps their coefficients in registers and
// walks the rows of a tile.
// `general`: rows and batches are as in the reduction by columns.
// With constant statistics a and b are 0 and src is not bound.
//
// Bindings: src (batch statistics only), diff_dst read; workspace read; diff_src written, or
// diff_dst in place.
// Moves 2 n elements in (n with constant statistics), n out.

struct Uniforms {
    channels: u32,
    inner: u32,
    width_quads: u32,
    tile_rows: u32,
    rows: u32,
    column_lanes: u32,
    first_tile: u32,
    end_tile: u32,
    column_tiles: u32,
    first_quad: u32,
    end_quad: u32,
    workgroups: u32,
    window: u32,
    length: u32,
    stats: u32,
    coefficients: u32,
    row_tiles: u32,    // blocks of rows
    axis0: u32,
    axis1: u32,
    axis2: u32,
    axis3: u32,
    axis4: u32,
    axis5: u32,
    axis6: u32,
    axis7: u32,
    kept_axes: u32,
}

override workgroup_size: u32 = 64u;
override batch_statistics: bool = true;

@compute @workgroup_size(workgroup_size)
fn apply_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row_lanes = workgroup_size / uniforms.column_lanes;
    let row_lane = local / uniforms.column_lanes;

    for (var tile = uniforms.first_tile + workgroup.x; tile < uniforms.end_tile; tile += uniforms.workgroups) {
        let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
        let row_tile = tile / uniforms.column_tiles % uniforms.row_tiles;
        let column = uniforms.first_quad + (tile % uniforms.column_tiles) * uniforms.column_lanes
            + local % uniforms.column_lanes;
        if column >= uniforms.end_quad { continue; }
        var mean = real4();
        var r = real4();
        var a = real4();
        var b = real4();
        var scale = real4();
        for (var i = 0u; i < 4u; i++) {
            let column_in_all = batch * 4u * uniforms.width_quads + 4u * column + i;
            let channel = (column_in_all / uniforms.inner) % uniforms.channels;
            let stats = workspace[uniforms.stats + channel];
            let coefficients = workspace[uniforms.coefficients + channel];
            mean[i] = stats.x;
            r[i] = stats.y;
            a[i] = coefficients.x;
            b[i] = coefficients.y;
            scale[i] = coefficients.z;
        }
        let full_quads = uniforms.length / 4u;
        let row_end = min(uniforms.rows, (row_tile + 1u) * uniforms.tile_rows);
        for (var row = row_tile * uniforms.tile_rows + row_lane; row < row_end; row += row_lanes) {
            let quad = row_of(batch, row) * uniforms.width_quads + column - uniforms.window / 4u;
            if quad > full_quads { break; }
            if quad == full_quads && uniforms.length % 4u == 0u { break; }
            var d = load_diff_dst(quad);
            if batch_statistics {
                d = (d - a) - (load_src(quad) - mean) * r * b;
            }
            if quad < full_quads {
                store_diff_src(quad, d * scale);
            } else {
                store_part_diff_src(quad, d * scale, uniforms.length % 4u);
            }
        }
    }
}

fn row_of(batch: u32, row: u32) -> u32 {
    if general { return join_axes(batch, row); }
    return row;
}
