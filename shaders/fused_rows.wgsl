// The whole layer-norm gradient in one reading: rows are short enough for the registers of those that
// share them. Per row, with d = diff_dst · gamma, diff_src = r · ((d − Σd / m) − x̂ · Σ(d·x̂) / m); the sums
// of diff_dst and diff_dst · x̂ per column stay in registers over a tile of rows and are written `paired`, from
// workspace[partials + group · columns / 2] on, one group a tile if `folded`, else one for each row that a
// workgroup does at once. A row begins at a quad.
//
// Bindings: src, diff_dst, mean, variance, gamma (optional: 1) read; workspace written; diff_src written,
// or diff_dst in place.
// Moves 2 n elements in, n out.

struct Uniforms {
    rows: u32,
    columns: u32,
    row_quads: u32,
    tile_rows: u32,  // rows of a tile, a multiple of those that a workgroup does at once
    first_tile: u32,
    end_tile: u32,
    grid_width: u32, // workgroups along x
    window: u32,
    length: u32,     // elements from the window's start to the tensor's end
    partials: u32,
    epsilon: real,
    inverse_count: real,
}

@compute @workgroup_size(workgroup_size)
fn fused_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let lane = local % lanes;
    let sublanes = workgroup_size / lanes;
    let last_column = uniforms.row_quads - 1u;

    var gamma: array<real4, column_quads>;
    var sum: array<real4, column_quads>;
    var sum_xhat: array<real4, column_quads>;
    for (var k = 0u; k < column_quads; k++) {
        if scaled { gamma[k] = load_gamma(min(lane + k * lanes, last_column)); }
        sum[k] = real4();
        sum_xhat[k] = real4();
    }

    var d: array<real4, column_quads>;
    var xhat: array<real4, column_quads>;
    let end = min(uniforms.rows, (tile + 1u) * uniforms.tile_rows);
    for (var first = tile * uniforms.tile_rows; first < end; first += sublanes) {
        // Past the last row, that one stands in and counts 0: barriers want all invocations.
        let own = first + local / lanes;
        let row = min(own, uniforms.rows - 1u);
        let mean = load_mean(row / 4u)[row % 4u];
        let r = real(1.0) / sqrt(load_variance(row / 4u)[row % 4u] + uniforms.epsilon);
        let row_start = row * uniforms.row_quads - uniforms.window / 4u;
        var row_total = real4();
        var row_total_xhat = real4();
        for (var k = 0u; k < column_quads; k++) {
            let column = lane + k * lanes;
            let quad = row_start + min(column, last_column);
            var diff_dst = load_diff_dst(quad);
            xhat[k] = (load_src(quad) - real4(mean)) * r;
            var diff_dst_xhat = diff_dst * xhat[k];
            d[k] = diff_dst;
            if summed {
                var counted = diff_dst;
                var counted_xhat = diff_dst_xhat;
                if lanes < workgroup_size {
                    counted = select(real4(), counted, own < uniforms.rows);
                    counted_xhat = select(real4(), counted_xhat, own < uniforms.rows);
                }
                sum[k] += counted;
                sum_xhat[k] += counted_xhat;
            }
            if scaled {
                diff_dst *= gamma[k];
                d[k] = diff_dst;
                diff_dst_xhat *= gamma[k];
            }
            if !complete {
                diff_dst = select(real4(), diff_dst, column <= last_column);
                diff_dst_xhat = select(real4(), diff_dst_xhat, column <= last_column);
            }
            row_total += diff_dst;
            row_total_xhat += diff_dst_xhat;
        }
        let means = row_sum(local, real2(
            (row_total.x + row_total.y) + (row_total.z + row_total.w),
            (row_total_xhat.x + row_total_xhat.y) + (row_total_xhat.z + row_total_xhat.w),
        )) * uniforms.inverse_count;
        for (var k = 0u; k < column_quads; k++) {
            let column = lane + k * lanes;
            if (complete || column <= last_column) && (lanes == workgroup_size || own < uniforms.rows) {
                store_diff_src(row_start + column, ((d[k] - real4(means.x)) - xhat[k] * means.y) * r);
            }
        }
    }

    if !summed { return; }
    let keep = select(workgroup_size, lanes, folded);
    let group = tile * (keep / lanes) + local / lanes;
    let count = uniforms.columns;
    let part = uniforms.partials + group * (count / 2u);
    for (var k = 0u; k < column_quads; k++) {
        write_columns(local, keep, true, part, 4u * (lane + k * lanes), count, sum[k], sum_xhat[k]);
    }
}
