// Takes four neighbouring elements from two vec4s. They begin `misalignment` elements, 0 to 3, after or before the
// start of `own`.

// After it: from this vec4 and the next.
fn realigned(own: real4, next: real4, misalignment: u32) -> real4 {
    let by_odd = misalignment % 2u == 1u;
    let near = select(own, real4(own.yzw, next.x), by_odd);
    let far = select(next.xy, next.yz, by_odd);
    return select(near, real4(near.zw, far), misalignment >= 2u);
}

// Before it: from the previous vec4 and this one.
fn realigned_before(before: real4, own: real4, misalignment: u32) -> real4 {
    let by_odd = misalignment % 2u == 1u;
    let near = select(own, real4(before.w, own.xyz), by_odd);
    let far = select(before.zw, before.yz, by_odd);
    return select(near, real4(far, near.xy), misalignment >= 2u);
}
