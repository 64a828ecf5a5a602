// Partial sums of diff_dst and diff_dst · x̂ per channel, for tensors whose channels alternate quickly
// (NXC, rank 2, short runs, the columns of layer norm). The tensor is read as rows of `width` columns,
// a multiple of 4 made of `repeats` outer indices of channels · inner elements; column j is of channel
// (j / inner) mod channels. An invocation owns four columns and walks the rows of a split; the
// invocations of a workgroup that own the same columns add up in a fixed order. Written are
// workspace[partials + split · width + j] = (Σ, Σ·x̂, 0, 0).
// `general`: a row is an index over general leading axes; for every index over those that are kept, a
// batch, the rows of the reduced ones are walked. A row is then as wide as the last axis, which is kept,
// and partial sums are at split · channels + batch · width + j.
// `by_row`: the statistics belong to the outer index, not to the channel (layer norm).
//
// Bindings: src, diff_dst read; workspace read and written.
// Moves 2 n elements in.

struct Uniforms {
    channels: u32,
    inner: u32,
    repeats: u32,
    width_quads: u32,
    split_rows: u32,   // rows of a split
    rows: u32,
    column_lanes: u32, // invocations side by side in a workgroup
    first_tile: u32,
    end_tile: u32,
    column_tiles: u32, // tiles of column_lanes quads along the window's columns
    first_quad: u32,   // the window's first column, in quads
    end_quad: u32,
    workgroups: u32,
    window: u32,
    length: u32,
    stats: u32,
    partials: u32,
    last_row: u32,     // the last outer index, for statistics by row
    splits: u32,       // blocks of rows
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

override by_row: bool = false;
override workgroup_size: u32 = 64u;

var<workgroup> sums: array<real4, workgroup_size>;
var<workgroup> sums_xhat: array<real4, workgroup_size>;

@compute @workgroup_size(workgroup_size)
fn reduce_columns(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row_lanes = workgroup_size / uniforms.column_lanes;
    let row_lane = local / uniforms.column_lanes;

    for (var tile = uniforms.first_tile + workgroup.x; tile < uniforms.end_tile; tile += uniforms.workgroups) {
        let batch = tile / uniforms.column_tiles / uniforms.splits;
        let split = tile / uniforms.column_tiles % uniforms.splits;
        let column = uniforms.first_quad + (tile % uniforms.column_tiles) * uniforms.column_lanes
            + local % uniforms.column_lanes;
        var sum = real4();
        var sum_xhat = real4();
        if column < uniforms.end_quad {
            var mean = real4();
            var r = real4();
            var outer = vec4<u32>();
            for (var i = 0u; i < 4u; i++) {
                let group = (batch * 4u * uniforms.width_quads + 4u * column + i) / uniforms.inner;
                outer[i] = group / uniforms.channels;
                if !by_row {
                    let stats = workspace[uniforms.stats + group % uniforms.channels];
                    mean[i] = stats.x;
                    r[i] = stats.y;
                }
            }
            // Of the last row there may be only a part, which ends within a quad.
            let full_quads = uniforms.length / 4u;
            let row_end = min(uniforms.rows, (split + 1u) * uniforms.split_rows);
            var row = split * uniforms.split_rows + row_lane;
            for (; row < row_end; row += row_lanes) {
                let quad = row_of(batch, row) * uniforms.width_quads + column - uniforms.window / 4u;
                if quad >= full_quads { break; }
                if by_row {
                    statistics_of_row(row, outer, &mean, &r);
                }
                let d = load_diff_dst(quad);
                sum += d;
                sum_xhat += d * ((load_src(quad) - mean) * r);
            }
            let quad = row_of(batch, row) * uniforms.width_quads + column - uniforms.window / 4u;
            if row < row_end && quad == full_quads && uniforms.length % 4u != 0u {
                if by_row {
                    statistics_of_row(row, outer, &mean, &r);
                }
                let inside = vec4(0u, 1u, 2u, 3u) < vec4(uniforms.length % 4u);
                let d = load_diff_dst(quad);
                sum += select(real4(), d, inside);
                sum_xhat += select(real4(), d * ((load_src(quad) - mean) * r), inside);
            }
        }

        sums[local] = sum;
        sums_xhat[local] = sum_xhat;
        workgroupBarrier();
        for (var stride = row_lanes / 2u; stride > 0u; stride /= 2u) {
            if row_lane < stride {
                sums[local] += sums[local + stride * uniforms.column_lanes];
                sums_xhat[local] += sums_xhat[local + stride * uniforms.column_lanes];
            }
            workgroupBarrier();
        }
        if row_lane == 0u && column < uniforms.end_quad {
            var first = uniforms.partials + 4u * (split * uniforms.width_quads + column);
            if general {
                first = uniforms.partials + split * uniforms.channels
                    + 4u * (batch * uniforms.width_quads + column);
            }
            for (var i = 0u; i < 4u; i++) {
                workspace[first + i] = real4(sums[local][i], sums_xhat[local][i], 0.0, 0.0);
            }
        }
        workgroupBarrier(); // the sums are written again in the next turn
    }
}

fn row_of(batch: u32, row: u32) -> u32 {
    if general { return join_axes(batch, row); }
    return row;
}

fn statistics_of_row(row: u32, outer: vec4<u32>, mean: ptr<function, real4>, r: ptr<function, real4>) {
    if uniforms.repeats == 1u {
        let stats = workspace[uniforms.stats + row];
        *mean = real4(stats.x);
        *r = real4(stats.y);
    } else {
        for (var i = 0u; i < 4u; i++) {
            // Past the tensor's end there is no row: the last one stands in, its products count 0.
            let index = min(row * uniforms.repeats + outer[i], uniforms.last_row);
            let stats = workspace[uniforms.stats + index];
            (*mean)[i] = stats.x;
            (*r)[i] = stats.y;
        }
    }
}
