// What one load moves: a packet of `packet_quads` quads, a constant of the text, 1 or 2.

struct Packet {
    quads: array<real4, packet_quads>,
}

const packet_elements: u32 = 4u * packet_quads;
