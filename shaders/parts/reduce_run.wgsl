// What the kernels share that add up the elements of a run, or of a chunk of it.

// Adds a block of packets, `lanes` apart from `first` on, of those before `end`.
fn sums_of_block(sums: Sums, range: vec2<u32>, first: u32, end: u32, cell: Cell) -> Sums {
    var block = Block();
    for (var b = 0u; b < block_packets; b++) {
        let own = first + b * uniforms.lanes;
        let packet = min(own, end - 1u);
        var diff_dst = load_packet_diff_dst(packet);
        var src = load_packet_src(packet);
        if b == 0u { block = begin(first_inside(range, packet, src)); }
        for (var k = 0u; k < packet_quads; k++) {
            let element = element_of(src[k], diff_dst[k], cell);
            let inside = inside_of(range, packet * packet_quads + k) & vec4(b == 0u || own < end);
            block = accumulate(block, element, inside);
        }
    }
    return end_block(sums, block);
}
