// Four neighbours from `shift` on, of eight.
fn shifted(low: real4, high: real4, shift: u32) -> real4 {
    let one = real4(low.yzw, high.x);
    let two = real4(low.zw, high.xy);
    let three = real4(low.w, high.xyz);
    return select(select(low, one, shift == 1u), select(two, three, shift == 3u), shift > 1u);
}
