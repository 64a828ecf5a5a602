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
    let stats = load_workspace(uniforms.stats + channel);

    var sum = real4();
    var sum_xhat = real4();
    let outer_end = min(uniforms.outer, (block + 1u) * uniforms.outer_block);
    for (var n = block * uniforms.outer_block + sublane; n < outer_end; n += sublanes) {
        let run = run_of(n, channel);
        let range = chunk_range(run, chunk);
        let end = (range.y + packet_elements - 1u) / packet_elements;
        for (var packet = range.x / packet_elements + lane; packet < end; packet += uniforms.lanes) {
            var diff_dst = load_packet_diff_dst(packet);
            var src = load_packet_src(packet);
            var result = Packet();
            for (var k = 0u; k < packet_quads; k++) {
                let quad = packet * packet_quads + k;
                let d = diff_dst[k];
                let d_xhat = d * ((src[k] - real4(stats.x)) * stats.y);
                sum += only_inside(range, quad, d);
                sum_xhat += only_inside(range, quad, d_xhat);
                result[k] = d * stats.z;
            }
            store_packet_diff_src(packet, result);
        }
    }

    workgroup_sum(local, real2(
        (sum.x + sum.y) + (sum.z + sum.w),
        (sum_xhat.x + sum_xhat.y) + (sum_xhat.z + sum_xhat.w),
    ));
    if local == 0u {
        let split = block * uniforms.chunks + chunk;
        let to = uniforms.partials + split * uniforms.channels + channel;
        store_workspace(to, real4(scratch[0], real2()));
    }
}
