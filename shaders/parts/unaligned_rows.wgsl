// The fused kernel over rows that do not begin at quads. A packet is one quad.

const same_columns: bool = false; // of an invocation and of others in its place of other rows

// gamma of a quad's columns, put together from two quads of gamma; 0 behind the row's end and before its start,
// where a buffer may hold anything.
fn gamma_of(quad: u32, shift: u32) -> real4 {
    let last = (uniforms.columns - 1u) / 4u;
    let before = load_gamma(min(max(quad, 1u) - 1u, last));
    let own = load_gamma(min(quad, last));
    let by_odd = shift % 2u == 1u;
    let near = select(own, real4(before.w, own.xyz), by_odd);
    let far = select(before.zw, before.yz, by_odd);
    let columns = select(near, real4(far, near.xy), shift >= 2u);
    return select(real4(), columns, columns_of(quad, shift) < vec4(uniforms.columns));
}

// Stores the elements of a packet that are in the row, below `end`; the others are its neighbours' or nobody's.
fn store_in_row(packet: u32, value: Packet, columns: vec4<u32>, end: u32) {
    store_some_diff_src(packet, value[0], columns < vec4(end));
}
