// A packet of two quads, one by one.
fn load_packet_TENSOR(packet: u32) -> Packet {
    return Packet(load_TENSOR(2u * packet), load_TENSOR(2u * packet + 1u));
}
