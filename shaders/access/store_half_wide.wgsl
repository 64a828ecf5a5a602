// A packet of two quads at once.
fn store_packet_TENSOR(packet: u32, value: Packet) {
    ARRAY[packet] = vec4(encode_DTYPE(value[0]), encode_DTYPE(value[1]));
}
