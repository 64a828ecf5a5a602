// diff_src = gamma · r · ((diff_dst − a) − x̂ · b) with a = Σ diff_dst / m and b = Σ diff_dst · x̂ / m,
// for tensors whose channels alternate quickly. The tensor is read as rows of `width` columns, as in
// the reduction by columns; an invocation owns some quads of columns, keeps their coefficients in
// registers and walks the rows of a tile.
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
    column_tiles: u32,   // tiles of column_lanes · column_quads quads
    first_quad: u32,
    end_quad: u32,
    grid_width: u32, // workgroups along x
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

override batch_statistics: bool = true;

@compute @workgroup_size(workgroup_size)
fn apply_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row_lanes = workgroup_size / uniforms.column_lanes;
    let row_lane = local / uniforms.column_lanes;

    let tile = apply_tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let batch = tile / uniforms.column_tiles / uniforms.row_tiles;
    let row_tile = tile / uniforms.column_tiles % uniforms.row_tiles;
    let first = first_column(tile, local % uniforms.column_lanes);

    var mean: array<real4, column_quads>;
    var r: array<real4, column_quads>;
    var a: array<real4, column_quads>;
    var b: array<real4, column_quads>;
    var scale: array<real4, column_quads>;
    for (var k = 0u; k < column_quads; k++) {
        let column = column_of(first, k);
        var place = place_of(batch, column);
        for (var i = 0u; i < 4u; i++) {
            let stats = load_workspace(uniforms.stats + place.channel);
            let coefficients = load_workspace(uniforms.coefficients + place.channel);
            mean[k][i] = stats.x;
            r[k][i] = stats.y;
            a[k][i] = coefficients.x;
            b[k][i] = coefficients.y;
            scale[k][i] = coefficients.z;
            place = next_place(place);
        }
    }

    let row_end = min(uniforms.rows, (row_tile + 1u) * uniforms.tile_rows);
    for (var row = row_tile * uniforms.tile_rows + row_lane; row < row_end; row += row_lanes) {
        let row_start = row_of(batch, row) * uniforms.width_quads - uniforms.window / 4u;
        for (var k = 0u; k < column_quads; k++) {
            let quad = quad_of(row_start, first, k);
            var d = load_diff_dst(quad);
            if batch_statistics {
                d = (d - a[k]) - (load_src(quad) - mean[k]) * r[k] * b[k];
            }
            store_in_row(row_start, first, k, d * scale[k]);
        }
    }
}
