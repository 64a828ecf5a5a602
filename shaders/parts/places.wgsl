// Where an element stands in a tensor, or a column in a row, along which `row_channels` channels alternate: the channel, and
// the element of its plane of `inner` elements.

struct Place {
    channel: u32,
    element: u32,
}

fn place_at(index: u32) -> Place {
    let group = index / uniforms.inner;
    return Place(group % uniforms.row_channels, index - group * uniforms.inner);
}

fn next_place(place: Place) -> Place {
    var next = place;
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

// The channels of four from a place on, which moves behind them.
fn four_channels(place: ptr<function, Place>) -> vec4<u32> {
    let first = *place;
    let next = next_place(first);
    let third = next_place(next);
    let last = next_place(third);
    *place = next_place(last);
    return vec4(first.channel, next.channel, third.channel, last.channel);
}
