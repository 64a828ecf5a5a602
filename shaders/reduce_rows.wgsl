// Partial sums of layer norm's rows and columns in one reading, for rows that are too long for registers
// or do not begin at a quad. A tile is some rows by `lanes` · `column_quads` quads of columns; an
// invocation holds neighbouring quads, and walks its rows. With d = diff_dst · gamma it writes for each
// row workspace[row_partials + row · row_parts + part] = (Σd, Σ d·x̂, 0, 0), its part of the columns, and
// in the end for each column workspace[partials + split · 4 · width_quads + column] = (Σ, Σ·x̂, 0, 0) of
// diff_dst. Where rows do not begin at a quad, columns 4q to 4q + 3 are shifted out of two quads.
//
// Bindings: src, diff_dst read; workspace read and written.
// Moves 2 n elements in.

struct Uniforms {
    rows: u32,
    columns: u32,
    width_quads: u32,  // quads of a row, the last one begun
    tile_rows: u32,    // rows of a tile, a multiple of those that a workgroup does at once
    column_tiles: u32, // tiles along a row
    row_parts: u32,    // partial sums of a row
    first_tile: u32,
    end_tile: u32,
    grid_width: u32,   // workgroups along x
    window: u32,
    length: u32,       // elements from the window's start to the tensor's end
    last_quad: u32,    // of the window
    stats: u32,
    weights: u32,
    row_partials: u32,
    partials: u32,
}

override aligned: bool = false; // every row begins at a quad

@compute @workgroup_size(workgroup_size)
fn reduce_rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let sublanes = workgroup_size / lanes;
    let split = tile / uniforms.column_tiles;
    let part = tile % uniforms.column_tiles * lanes + local % lanes;
    let first = part * column_quads;

    var gamma: array<real4, column_quads>;
    var sum: array<real4, column_quads>;
    var sum_xhat: array<real4, column_quads>;
    for (var k = 0u; k < column_quads; k++) {
        gamma[k] = real4(1.0);
        if affine { gamma[k] = workspace[uniforms.weights + min(first + k, uniforms.width_quads - 1u)]; }
        sum[k] = real4();
        sum_xhat[k] = real4();
    }

    let end = min(uniforms.rows, (split + 1u) * uniforms.tile_rows);
    for (var row = split * uniforms.tile_rows + local / lanes; row < end; row += sublanes) {
        let stats = workspace[uniforms.stats + row];
        let start = row * uniforms.columns - uniforms.window; // may begin before the window
        let shift = start % 4u;
        var row_sum = real4();
        var row_sum_xhat = real4();
        var low = Pair();
        if !aligned { low = load_pair(start, first); }
        for (var k = 0u; k < column_quads; k++) {
            var diff_dst = real4();
            var src = real4();
            if aligned {
                let pair = load_pair(start, min(first + k, uniforms.width_quads - 1u));
                diff_dst = pair.diff_dst;
                src = pair.src;
            } else {
                let high = load_pair(start, first + k + 1u);
                diff_dst = shifted(low.diff_dst, high.diff_dst, shift);
                src = shifted(low.src, high.src, shift);
                low = high;
            }
            var diff_dst_xhat = diff_dst * ((src - real4(stats.x)) * stats.y);
            if !complete {
                let inside = vec4(4u * (first + k)) + vec4(0u, 1u, 2u, 3u) < vec4(uniforms.columns);
                diff_dst = select(real4(), diff_dst, inside);
                diff_dst_xhat = select(real4(), diff_dst_xhat, inside);
            }
            sum[k] += diff_dst;
            sum_xhat[k] += diff_dst_xhat;
            row_sum += diff_dst * gamma[k];
            row_sum_xhat += diff_dst_xhat * gamma[k];
        }
        if complete || first < uniforms.width_quads {
            workspace[uniforms.row_partials + row * uniforms.row_parts + part] = real4(
                (row_sum.x + row_sum.y) + (row_sum.z + row_sum.w),
                (row_sum_xhat.x + row_sum_xhat.y) + (row_sum_xhat.z + row_sum_xhat.w),
                0.0,
                0.0,
            );
        }
    }

    if !affine { return; }
    for (var k = 0u; k < column_quads; k++) {
        let column = first + k;
        let to = uniforms.partials + 4u * (split * uniforms.width_quads + column);
        write_columns(local, to, complete || column < uniforms.width_quads, sum[k], sum_xhat[k]);
    }
}

struct Pair {
    diff_dst: real4,
    src: real4,
}

// The quad in which a column quad of the row begins; what is beside the window is not used.
fn load_pair(start: u32, column: u32) -> Pair {
    var quad = (start + 4u * column) / 4u;
    if !aligned { quad = min(quad, uniforms.last_quad); }
    return Pair(load_diff_dst(quad), load_src(quad));
}
