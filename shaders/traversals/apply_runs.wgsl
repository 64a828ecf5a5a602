// diff_src = gamma · r · ((diff_dst − a) − x̂ · b) with a = Σ diff_dst / m and b = Σ diff_dst · x̂ / m,
// for tensors whose channels are runs of `inner` consecutive elements. A workgroup takes a tile:
// `run_block` runs, or one chunk of one run; `lanes` invocations share a run. Every packet is stored by
// one invocation, the one in whose chunk it begins; where a run ends inside of a packet, the elements
// behind it take the next run's coefficients.
// With constant statistics a and b are 0 and src is not bound.
//
// Bindings: src (batch statistics only), diff_dst read; workspace read; diff_src written, or
// diff_dst in place.
// Moves 2 n elements in (n with constant statistics), n out.

@compute @workgroup_size(workgroup_size)
fn apply_runs(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let lane = lane_of(local, uniforms.lanes);
    let sublane = group_of(local, uniforms.lanes);
    let sublanes = group_of(workgroup_size, uniforms.lanes);

    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let chunk = tile % uniforms.chunks;
    let block = tile / uniforms.chunks;
    let run_end = min(uniforms.runs, (block + 1u) * uniforms.run_block);
    for (var run = block * uniforms.run_block + sublane; run < run_end; run += sublanes) {
        let run_start = run * uniforms.inner - uniforms.window;
        let own = run_cell(run);
        var next = own;
        if !packet_aligned { next = run_cell(run + 1u); }
        apply_to_run(run, own, next, run_start, chunk_range(run, chunk), lane);
    }
}

// Of the run's channel; past the last run there is nothing to write, so any will do.
fn run_cell(run: u32) -> Cell {
    let channel = channel_of(min(run, uniforms.runs - 1u));
    let cell = cell_of(splat(load_workspace(uniforms.stats + channel)));
    if !batch_statistics { return cell; }
    return combine(cell, splat(load_workspace(uniforms.means + channel)));
}

fn result_of(src: real4, diff_dst: real4, cell: Cell) -> real4 {
    let element = element_of(src, diff_dst, cell);
    if !batch_statistics { return result_of_constants(element, cell); }
    return result(element, cell);
}
