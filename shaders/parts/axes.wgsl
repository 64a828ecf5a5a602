// Indices over up to 8 axes. `join_axes` makes the row-major index over all of them from an index over those that are
// kept and one over the others; `kept_index` goes back to the former. Axis a has `axis…a` indices (1 where there is no
// such axis) and is kept if bit a of the argument `axes` is set. For a tensor whose channels do not fold to (outer,
// channels, inner) these are its leading axes, and `kept_axes` are those along which channels vary.

struct Digits {
    axes: u32, // the kept ones
    index: u32,
    index_stride: u32,
    kept: u32,
    kept_stride: u32,
    rest: u32,
}

fn join_axis(digits: ptr<function, Digits>, axis: u32, size: u32) {
    // Without branches: SwiftShader takes minutes to compile dozens of them in a loop.
    let is_kept = (((*digits).axes >> axis) & 1u) == 1u;
    let index = select((*digits).rest, (*digits).kept, is_kept);
    let left = index / size;
    (*digits).kept = select((*digits).kept, left, is_kept);
    (*digits).rest = select(left, (*digits).rest, is_kept);
    (*digits).index += (index - left * size) * (*digits).index_stride;
    (*digits).index_stride *= size;
}

fn join_axes(axes: u32, kept: u32, rest: u32) -> u32 {
    var digits = Digits(axes, 0u, 1u, kept, 1u, rest);
    join_axis(&digits, 7u, uniforms.axis7);
    join_axis(&digits, 6u, uniforms.axis6);
    join_axis(&digits, 5u, uniforms.axis5);
    join_axis(&digits, 4u, uniforms.axis4);
    join_axis(&digits, 3u, uniforms.axis3);
    join_axis(&digits, 2u, uniforms.axis2);
    join_axis(&digits, 1u, uniforms.axis1);
    join_axis(&digits, 0u, uniforms.axis0);
    return digits.index;
}

fn keep_axis(digits: ptr<function, Digits>, axis: u32, size: u32) {
    let is_kept = (((*digits).axes >> axis) & 1u) == 1u;
    let left = (*digits).index / size;
    let digit = (*digits).index - left * size;
    (*digits).kept += select(0u, digit * (*digits).kept_stride, is_kept);
    (*digits).kept_stride *= select(1u, size, is_kept);
    (*digits).index = left;
}

fn kept_index(axes: u32, index: u32) -> u32 {
    var digits = Digits(axes, index, 1u, 0u, 1u, 0u);
    keep_axis(&digits, 7u, uniforms.axis7);
    keep_axis(&digits, 6u, uniforms.axis6);
    keep_axis(&digits, 5u, uniforms.axis5);
    keep_axis(&digits, 4u, uniforms.axis4);
    keep_axis(&digits, 3u, uniforms.axis3);
    keep_axis(&digits, 2u, uniforms.axis2);
    keep_axis(&digits, 1u, uniforms.axis1);
    keep_axis(&digits, 0u, uniforms.axis0);
    return digits.kept;
}
