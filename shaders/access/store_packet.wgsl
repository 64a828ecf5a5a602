// Quad by quad.
fn store_packet_TENSOR(packet: u32, value: Packet) {
    var quads = value;
    for (var k = 0u; k < packet_quads; k++) {
        store_TENSOR(packet * packet_quads + k, quads[k]);
    }
}

// The first `count` of a packet's elements: the tensor ends there.
fn store_part_packet_TENSOR(packet: u32, value: Packet, count: u32) {
    var quads = value;
    for (var k = 0u; k < packet_quads; k++) {
        store_part_TENSOR(packet * packet_quads + k, quads[k], clamp(count, 4u * k, 4u * k + 4u) - 4u * k);
    }
}
