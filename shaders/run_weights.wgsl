// gamma along a run. `weight_quad(k)` is what the kernel has for columns 4k to 4k + 3, below
// `weight_quads` in number.

override weighted: bool = false;

fn weight_at(column: u32) -> real {
    return weight_quad(column / 4u)[column % 4u];
}

// gamma at a quad that holds an element of the run from `run_start` on. Elements before the run get
// any weight; those behind it are of the next run, whose columns begin at 0 again.
fn weights_at(quad: u32, run_start: u32) -> real4 {
    if aligned {
        return weight_quad((4u * quad - run_start) / 4u); // a run may begin before the window
    }
    let inner = uniforms.inner;
    let distance = 4u * quad - run_start; // wraps if the quad begins before the run
    if narrow {
        var weights = real4();
        for (var i = 0u; i < 4u; i++) {
            let column = select(distance + i, 0u, distance + i >= 0x80000000u);
            weights[i] = weight_at(column % inner);
        }
        return weights;
    }
    let shift = distance % 4u;
    let before = distance >= 0x80000000u;
    let low = select((distance - shift) / 4u, 0u, before);
    let high = select(low + 1u, 0u, before);
    let last = (inner - 1u) / 4u;
    var weights = shifted(weight_quad(min(low, last)), weight_quad(min(high, last)), shift);
    // Behind the run: lane inner − distance + k is column k of the next.
    let first_behind = inner - distance;
    let start = weight_quad(0u);
    let behind = shifted(start, start, (4u - first_behind % 4u) % 4u);
    return select(weights, behind, vec4(0u, 1u, 2u, 3u) >= vec4(first_behind));
}
