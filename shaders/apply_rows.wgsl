// diff_src = r · ((d − a) − x̂ · b) with d = diff_dst · gamma and the row's means a = Σd / m and
// b = Σ d·x̂ / m, by the tiles of the reduction by rows. A quad is stored by the invocation in whose row it
// begins; where the row ends inside of it, the elements behind are the next rows'.
//
// Bindings: src, diff_dst read; workspace read; diff_src written, or diff_dst in place.
// Moves 2 n elements in, n out.

struct Uniforms {
    rows: u32,
    columns: u32,
    row_quads: u32,    // quads that a row touches, at most
    tile_rows: u32,    // a multiple of row_step
    row_step: u32,
    phases: u32,
    column_tiles: u32, // tiles along a row
    first_tile: u32,
    end_tile: u32,
    grid_width: u32,   // workgroups along x
    window: u32,
    length: u32,       // elements from the window's start to the tensor's end
    last_quad: u32,    // of the window
    stats: u32,
    coefficients: u32,
    weights: u32,
}

override narrow: bool = false; // rows are shorter than a quad
override whole: bool = false;  // the tensor ends with a quad

@compute @workgroup_size(workgroup_size)
fn apply_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = apply_tile_of(workgroup);
    if index >= uniforms.end_tile { return; }
    let tile = tile_at(index, local);

    var gamma: array<real4, column_quads>;
    for (var k = 0u; k < column_quads; k++) {
        gamma[k] = gamma_at(tile.shift, tile.quad + k * lanes);
    }

    for (var row = tile.row; row < tile.end; row += uniforms.row_step) {
        let own = coefficients_of(row);
        var next = own;
        if !aligned { next = coefficients_of(min(row + 1u, uniforms.rows - 1u)); }
        let first = first_quad_of(row);
        for (var k = 0u; k < column_quads; k++) {
            let columns = columns_of(tile.quad + k * lanes, tile.shift);
            let quad = quad_in_window(first, tile.quad + k * lanes);
            let d = load_diff_dst(quad) * gamma[k];
            let src = load_src(quad);
            var result = gradient(d, src, own);
            if narrow {
                for (var i = 0u; i < 4u; i++) {
                    let other = min(row + columns[i] / uniforms.columns, uniforms.rows - 1u);
                    result[i] = gradient(d, src, coefficients_of(other))[i];
                }
            } else if !aligned {
                result = select(result, gradient(d, src, next), columns >= vec4(uniforms.columns));
            }
            if complete || columns.x < uniforms.columns {
                if whole {
                    store_diff_src(quad, result);
                } else {
                    store_part_diff_src(quad, result, min(4u, uniforms.length - 4u * quad));
                }
            }
        }
    }
}

fn coefficients_of(row: u32) -> Coefficients {
    let stats = load_workspace(uniforms.stats + row);
    let means = load_workspace(uniforms.coefficients + row);
    return Coefficients(stats.x, stats.y, means.x, means.y, stats.y);
}
