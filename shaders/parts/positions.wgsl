// The position of an element in a tensor, or of a column in a row, along which `row_channels` channels alternate: its
// channel, and its index in the channel's plane of `inner` elements.

struct Position {
    channel: u32,
    element: u32,
}

fn position_at(index: u32) -> Position {
    let plane = index / uniforms.inner;
    return Position(plane % uniforms.row_channels, index - plane * uniforms.inner);
}

fn next_position(position: Position) -> Position {
    var next = position;
    next.element++;
    if next.element == uniforms.inner {
        next.element = 0u;
        next.channel++;
    }
    if next.channel == uniforms.row_channels {
        next.channel = 0u;
    }
    return next;
}

// The channels of four elements from a position on; moves the position past them.
fn four_channels(position: ptr<function, Position>) -> vec4<u32> {
    let first = *position;
    let next = next_position(first);
    let third = next_position(next);
    let last = next_position(third);
    *position = next_position(last);
    return vec4(first.channel, next.channel, third.channel, last.channel);
}
