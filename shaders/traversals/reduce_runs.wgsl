// Partial sums of diff_dst and diff_dst · x̂ per channel, for tensors whose channels are runs of
// `inner` consecutive elements (NCX). A tile is `outer_block` runs of one channel, or one chunk of one run;
// a workgroup takes a tile and writes workspace[partials + split · channels + c] = (Σ, Σ·x̂, 0, 0).
// `lanes` invocations share a run.
// With constant statistics the gradient does not wait for the sums: where runs begin at packets,
// diff_src = gamma · r · diff_dst is written on the way.
//
// Bindings: src, diff_dst read; workspace read and written; diff_src (optional) written, or diff_dst in
// place.
// Moves 2 n elements in, and n out if diff_src is bound.

@compute @workgroup_size(workgroup_size)
fn reduce_runs(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local, uniforms.lanes);
    let sublane = group_of(local, uniforms.lanes);
    let sublanes = group_of(workgroup_size, uniforms.lanes);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let chunk = tile % uniforms.chunks;
    let channel = (tile / uniforms.chunks) % uniforms.channels;
    let block = tile / uniforms.chunks / uniforms.channels;
    let cell = cell_of(splat(load_workspace(uniforms.stats + channel)));

    var sums = Sums();
    let outer_end = min(uniforms.outer, (block + 1u) * uniforms.outer_block);
    for (var n = block * uniforms.outer_block + sublane; n < outer_end; n += sublanes) {
        let run = run_of(n, channel);
        let range = chunk_range(run, chunk);
        let end = (range.y + packet_elements - 1u) / packet_elements;
        for (var packet = range.x / packet_elements + lane; packet < end; packet += block_packets * uniforms.lanes) {
            sums = sums_of_block(sums, range, packet, end, cell);
            store_packet_diff_src(packet, result_in_passing(packet, cell));
        }
    }

    workgroup_sum(local, across(sums));
    if local == 0u {
        let split = block * uniforms.chunks + chunk;
        let to = uniforms.partials + split * uniforms.channels + channel;
        store_workspace(to, words_of_record(scratch[0]));
    }
}

// A packet's diff_src where mean and variance are constants: nothing but the cell is needed, and diff_dst again.
fn result_in_passing(packet: u32, cell: Cell) -> Packet {
    var diff_dst = load_packet_diff_dst(packet);
    var written = Packet();
    for (var k = 0u; k < packet_quads; k++) {
        written[k] = result_of_constants(element_of(real4(), diff_dst[k], cell), cell);
    }
    return written;
}
