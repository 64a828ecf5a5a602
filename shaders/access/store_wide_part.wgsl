// A tensor that is stored by packets of two quads ends with one.
fn store_part_packet_TENSOR(packet: u32, value: Packet, count: u32) {
    store_packet_TENSOR(packet, value);
}
