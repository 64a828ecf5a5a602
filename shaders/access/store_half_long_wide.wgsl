// A packet of two quads at once.
fn store_packet_TENSOR(packet: u32, value: Packet) {
    ARRAY[packet] = vec2(join_long(encode_DTYPE(value[0])), join_long(encode_DTYPE(value[1])));
}
