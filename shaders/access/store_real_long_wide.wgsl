// A packet of two quads at once.
fn store_packet_TENSOR(packet: u32, value: Packet) {
    ARRAY[packet] = vec4(longs_of_real(value[0]), longs_of_real(value[1]));
}
