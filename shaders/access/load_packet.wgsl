// Quad by quad.
fn load_packet_TENSOR(packet: u32) -> Packet {
    var value: Packet;
    for (var k = 0u; k < packet_quads; k++) {
        value[k] = load_TENSOR(packet * packet_quads + k);
    }
    return value;
}
