// The fused kernel over rows that begin at quads.

const same_columns: bool = true; // an invocation's columns in every row

// gamma of a quad's columns; of one behind the row's end, that of the last.
fn gamma_of(quad: u32, shift: u32) -> real4 {
    return load_gamma(min(quad, uniforms.row_quads - 1u));
}

// Stores a packet that is in the row.
fn store_in_row(packet: u32, value: Packet, columns: vec4<u32>, end: u32) {
    store_packet_diff_src(packet, value);
}
