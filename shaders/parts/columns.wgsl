// What the kernels over columns share: which packets of a row an invocation owns. There are `column_packets` of
// them, a constant of the text, for a compiler keeps arrays in registers if their length is that of the loops
// over them.

fn first_column(tile: u32, lane: u32) -> u32 {
    let width = uniforms.column_lanes * column_packets;
    return uniforms.first_packet + tile % uniforms.column_tiles * width + lane;
}

// The p-th of the invocation's packets of columns; past the end, the last stands in and nothing is written.
fn column_of(first: u32, p: u32) -> u32 {
    return min(first + p * uniforms.column_lanes, uniforms.end_packet - 1u);
}

// Where a column stands: the channel, and the element of its run.
struct Place {
    channel: u32,
    element: u32,
}

// Of a packet's first element.
fn place_of(batch: u32, column: u32) -> Place {
    let index = packet_elements * (batch * uniforms.width_packets + column);
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

// The channels of four columns from a place on, which moves behind them.
fn four_channels(place: ptr<function, Place>) -> vec4<u32> {
    let first = *place;
    let second = next_place(first);
    let third = next_place(second);
    let fourth = next_place(third);
    *place = next_place(fourth);
    return vec4(first.channel, second.channel, third.channel, fourth.channel);
}

// A row's first packet, relative to the window.
fn row_start_of(batch: u32, row: u32) -> u32 {
    return row_of(batch, row) * uniforms.width_packets - uniforms.window / packet_elements;
}

// The packet of a row in the p-th column; past the tensor's end, its last.
fn packet_of(row_start: u32, first: u32, p: u32) -> u32 {
    let packet = row_start + column_of(first, p);
    if complete { return packet; }
    return min(packet, (uniforms.length - 1u) / packet_elements);
}

// Which of a quad's elements are in the tensor. A quad may be so far behind that its elements' numbers
// would wrap.
fn inside_tensor(quad: u32) -> vec4<bool> {
    if complete { return vec4(true); }
    let count = select(uniforms.length - 4u * quad, 0u, quad > (uniforms.length - 1u) / 4u);
    return vec4(0u, 1u, 2u, 3u) < vec4(count);
}

// Writes the packet of a row in the p-th column, as far as it is in the tensor.
fn store_in_row(row_start: u32, first: u32, p: u32, value: Packet) {
    let packet = row_start + column_of(first, p);
    if first + p * uniforms.column_lanes < uniforms.end_packet {
        if complete {
            store_packet_diff_src(packet, value);
        } else if packet <= (uniforms.length - 1u) / packet_elements {
            if whole {
                store_packet_diff_src(packet, value);
            } else {
                let left = uniforms.length - packet * packet_elements;
                store_part_packet_diff_src(packet, value, min(packet_elements, left));
            }
        }
    }
}

fn row_of(batch: u32, row: u32) -> u32 {
    if general { return join_axes(batch, row); }
    return row;
}
