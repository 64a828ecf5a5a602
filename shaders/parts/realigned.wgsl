// The four elements that begin `misalignment` elements into a vec4, from this one and the next.

fn realigned(own: real4, next: real4, misalignment: u32) -> real4 {
    let by_odd = misalignment % 2u == 1u;
    let near = select(own, real4(own.yzw, next.x), by_odd);
    let far = select(next.xy, next.yz, by_odd);
    return select(near, real4(near.zw, far), misalignment >= 2u);
}
