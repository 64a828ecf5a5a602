// A packet of two quads at once.
fn load_packet_TENSOR(packet: u32) -> Packet {
    let longs = ARRAY[packet];
    return Packet(real_of_longs(longs.xy), real_of_longs(longs.zw));
}
