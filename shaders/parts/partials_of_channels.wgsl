// The record of partial sum number `partial` of each of four results, where partial sums are those of the channels that
// share a result: `result_axes` are the axes of channels that results vary along, and `partial` is an index along the
// others.

#import axes

fn records_of(result: vec4<u32>, partial: u32) -> vec4<u32> {
    let axes = uniforms.result_axes;
    return vec4(
        join_axes(axes, result.x, partial),
        join_axes(axes, result.y, partial),
        join_axes(axes, result.z, partial),
        join_axes(axes, result.w, partial),
    );
}
