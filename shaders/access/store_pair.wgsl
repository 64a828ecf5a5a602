// A packet of two quads, one by one.
fn store_packet_TENSOR(packet: u32, value: Packet) {
    store_TENSOR(2u * packet, value[0]);
    store_TENSOR(2u * packet + 1u, value[1]);
}

// The first `count` of a packet's elements: the tensor ends there.
fn store_part_packet_TENSOR(packet: u32, value: Packet, count: u32) {
    store_part_TENSOR(2u * packet, value[0], min(count, 4u));
    store_part_TENSOR(2u * packet + 1u, value[1], max(count, 4u) - 4u);
}
