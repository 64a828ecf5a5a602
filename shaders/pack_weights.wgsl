// gamma as reals in the workspace, for layer norm's rows, along which it lies: copy s, for rows that begin
// s elements into a quad, has workspace[weights + s · row_quads + q] = gamma of columns 4q − s to
// 4q − s + 3. Behind the row's end the next row begins; before its start any column will do.
// An invocation does a quad of all copies.
//
// Bindings: gamma read; workspace written. Moves a row's length in elements in, as many out for each copy.

struct Uniforms {
    columns: u32,
    row_quads: u32,
    weights: u32,
    grid_width: u32, // workgroups along x
}

override aligned: bool = false; // every row begins at a quad: there is one copy

@compute @workgroup_size(workgroup_size)
fn pack_weights(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let quad = tile_of(workgroup) * workgroup_size + local;
    if quad >= uniforms.row_quads { return; }

    if aligned {
        store_workspace(uniforms.weights + quad, load_gamma(quad));
        return;
    }
    // Columns 4q − 3 to 4q + 3, of which every copy has four.
    let columns = uniforms.columns;
    let before = (columns + 2u) / columns * columns; // as many rows as three columns before one reach
    var weights: array<real, 7>;
    for (var i = 0u; i < 7u; i++) {
        // Around the row's length as often as a quad can reach: a division takes far longer.
        var column = 4u * quad + i + select(0u, before, 4u * quad + i < 3u) - 3u;
        for (var turn = 0u; turn < 3u; turn++) {
            column -= select(0u, columns, column >= columns);
        }
        weights[i] = load_gamma(column / 4u)[column % 4u];
    }
    for (var copy = 0u; copy < 4u; copy++) {
        let first = 3u - copy;
        store_workspace(
            uniforms.weights + copy * uniforms.row_quads + quad,
            real4(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]),
        );
    }
}
