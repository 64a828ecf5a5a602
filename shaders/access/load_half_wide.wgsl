// A packet of two quads at once.
fn load_packet_TENSOR(packet: u32) -> Packet {
    let words = ARRAY[packet];
    return Packet(decode_DTYPE(words.xy), decode_DTYPE(words.zw));
}
