// What the kernels over columns share: which quads of a row an invocation owns. There are `column_quads` of
// them, a constant of the text, for a compiler keeps arrays in registers if their length is that of the
// loops over them.

override workgroup_size: u32 = 64u;
override complete: bool = false; // the last row is complete
override whole: bool = false;    // the tensor ends with a quad

fn first_column(tile: u32, lane: u32) -> u32 {
    let width = uniforms.column_lanes * column_quads;
    return uniforms.first_quad + tile % uniforms.column_tiles * width + lane;
}

// The k-th of the invocation's columns; past the end, the last stands in and nothing is written.
fn column_of(first: u32, k: u32) -> u32 {
    return min(first + k * uniforms.column_lanes, uniforms.end_quad - 1u);
}

// Where a column stands: the channel, and the element of its run.
struct Place {
    channel: u32,
    element: u32,
}

// Of a quad's first element.
fn place_of(batch: u32, column: u32) -> Place {
    let index = 4u * (batch * uniforms.width_quads + column);
    let group = index / uniforms.inner;
    return Place(group % uniforms.channels, index - group * uniforms.inner);
}

fn next_place(place: Place) -> Place {
    var next = place;
    next.element++;
    if next.element == uniforms.inner {
        next.element = 0u;
        next.channel++;
    }
    if next.channel == uniforms.channels {
        next.channel = 0u;
    }
    return next;
}

// The quad of a row in the k-th column; past the tensor's end, its last.
fn quad_of(row_start: u32, first: u32, k: u32) -> u32 {
    let quad = row_start + column_of(first, k);
    if complete { return quad; }
    return min(quad, (uniforms.length - 1u) / 4u);
}

// Which of a quad's elements are in the tensor. A quad may be so far behind that its elements' numbers
// would wrap.
fn inside_tensor(quad: u32) -> vec4<bool> {
    let count = select(uniforms.length - 4u * quad, 0u, quad > (uniforms.length - 1u) / 4u);
    return vec4(0u, 1u, 2u, 3u) < vec4(count);
}

// Writes the quad of a row in the k-th column, as far as it is in the tensor.
fn store_in_row(row_start: u32, first: u32, k: u32, value: real4) {
    let quad = row_start + column_of(first, k);
    if first + k * uniforms.column_lanes < uniforms.end_quad {
        if complete {
            store_diff_src(quad, value);
        } else if quad <= (uniforms.length - 1u) / 4u {
            if whole {
                store_diff_src(quad, value);
            } else {
                store_part_diff_src(quad, value, min(4u, uniforms.length - 4u * quad));
            }
        }
    }
}

fn row_of(batch: u32, row: u32) -> u32 {
    if general { return join_axes(batch, row); }
    return row;
}
