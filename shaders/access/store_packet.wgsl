// A packet of one quad.
fn store_packet_TENSOR(packet: u32, value: Packet) {
    store_TENSOR(packet, value[0]);
}

// The first `count` of a packet's elements: the tensor ends there.
fn store_part_packet_TENSOR(packet: u32, value: Packet, count: u32) {
    store_part_TENSOR(packet, value[0], count);
}
