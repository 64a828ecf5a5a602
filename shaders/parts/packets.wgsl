// What one load moves: a packet of `packet_quads` quads, a constant of the text, 1 or 2.

// No struct of that: FXC, which compiles for DirectX where DXC is not at hand, refuses to index arrays in structs.
alias Packet = array<real4, packet_quads>;

const packet_elements: u32 = 4u * packet_quads;
