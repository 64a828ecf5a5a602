// A packet of one quad. No loop: lavapipe unrolls loops around at most one.
fn load_packet_TENSOR(packet: u32) -> Packet {
    return Packet(load_TENSOR(packet));
}
