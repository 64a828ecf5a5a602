// A packet of two quads at once.
fn load_packet_TENSOR(packet: u32) -> Packet {
    let longs = ARRAY[packet];
    return Packet(decode_DTYPE(split_long(longs.x)), decode_DTYPE(split_long(longs.y)));
}
