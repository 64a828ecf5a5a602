// What the kernels share that write diff_src of a run, or of a chunk of it. Every packet is stored by one
// invocation, the one in whose part it begins; where the run ends inside of a packet, the elements behind it
// are of the next run in storage. A kernel says which `run_cell` a run is of, and the `result_of` an element.

// Packets that begin in `range`, every `lanes`-th from `lane` on, of the run that begins at `run_start`.
fn apply_to_run(run: u32, own: Cell, next: Cell, run_start: u32, range: vec2<u32>, lane: u32) {
    let run_end = run_start + uniforms.inner;
    let end = (range.y + packet_elements - 1u) / packet_elements;
    let first = (range.x + packet_elements - 1u) / packet_elements;
    for (var packet = first + lane; packet < end; packet += uniforms.lanes) {
        var diff_dst = load_packet_diff_dst(packet);
        var src = load_packet_src(packet);
        var written = Packet();
        for (var k = 0u; k < packet_quads; k++) {
            let elements = vec4(packet * packet_elements + 4u * k) + vec4(0u, 1u, 2u, 3u);
            var cell = own;
            if quad_aligned { cell = select_cell(own, next, vec4(elements.x >= run_end)); }
            var quad = result_of(src[k], diff_dst[k], cell);
            if narrow {
                // By `select`: FXC takes minutes for a store to an element of a vector here, or gives up.
                for (var i = 0u; i < 4u; i++) {
                    let other = run_cell(run + (elements[i] - run_start) / uniforms.inner);
                    quad = select(quad, result_of(src[k], diff_dst[k], other), vec4(i) == vec4(0u, 1u, 2u, 3u));
                }
            } else if !quad_aligned {
                quad = select(quad, result_of(src[k], diff_dst[k], next), elements >= vec4(run_end));
            }
            written[k] = quad;
        }
        if whole {
            store_packet_diff_src(packet, written);
        } else {
            let left = uniforms.length - packet * packet_elements;
            store_part_packet_diff_src(packet, written, min(packet_elements, left));
        }
    }
}
