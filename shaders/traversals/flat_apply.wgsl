// The elementwise pass of a forward pass with a residual and an activation, which keeps a mask for the gradient. It
// writes dst = relu(norm + residual), and mask: bit i of word w says whether element 32 · w + i passes, which it does
// unless norm + residual is at most 0. A word ignores the bounds of channels, so elements are done in the tensor's
// order, each with the record of its channel.
//
// A workgroup does a tile of `workgroup_size` words. An invocation does eight vec4s, `workgroup_size` apart, and after
// a barrier puts the bits of eight neighbouring vec4s into a word.
// Where the channels are those of all samples, whose rows alternate between channels (`sampled`), a sample has `sample`
// elements.
//
// Bindings: src, residual read; workspace read; dst, mask written.
// Moves 2 n elements in; n, and n / 32 words, out.

#import tiles, body, records, axes, positions

const vec4s_of_a_word: u32 = 8u;

var<workgroup> passed: array<u32, vec4s_of_a_word * workgroup_size>; // four bits each

@compute @workgroup_size(workgroup_size)
fn flat_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let tile = uniforms.first_tile + tile_of(workgroup);
    if tile >= uniforms.end_tile { return; }

    let tile_start = tile * (32u * workgroup_size);
    let vec4s = (uniforms.length + 3u) / 4u;
    for (var k = 0u; k < vec4s_of_a_word; k++) {
        let place = k * workgroup_size + local;
        let index = tile_start + 4u * place;
        let vec4_index = (index - uniforms.window) / 4u;
        var bits = 0u;
        if vec4_index < vec4s {
            let coefficients = coefficients_of(load_records(vec4(uniforms.stats) + channels_of(index)));
            let element = element_of(load_inputs(vec4_index), coefficients);
            let outputs = result(element, coefficients);
            let count = min(4u, uniforms.length - 4u * vec4_index);
            if count == 4u {
                store_outputs(vec4_index, outputs);
            } else {
                store_first_outputs(vec4_index, outputs, count);
            }
            let passing = passes(element, coefficients) & (vec4(0u, 1u, 2u, 3u) < vec4(count));
            bits = dot(vec4(1u, 2u, 4u, 8u), vec4<u32>(passing));
        }
        passed[place] = bits;
    }
    workgroupBarrier();

    var word = 0u;
    for (var i = 0u; i < vec4s_of_a_word; i++) {
        word |= passed[vec4s_of_a_word * local + i] << (4u * i);
    }
    // The mask is bound from an aligned position at or before the window.
    let before = uniforms.window % mask_unit;
    let word_index = (tile_start - uniforms.window + before) / 32u + local;
    if word_index < before / 32u + (uniforms.length + 31u) / 32u { mask[word_index] = word; }
}

// The channels of four elements from `index` on.
fn channels_of(index: u32) -> vec4<u32> {
    let elements = min(vec4(index) + vec4(0u, 1u, 2u, 3u), vec4(uniforms.window + uniforms.length - 1u));
    if general {
        return vec4(
            channel_along_axes(elements.x),
            channel_along_axes(elements.y),
            channel_along_axes(elements.z),
            channel_along_axes(elements.w),
        );
    }
    var position = position_at(index);
    let channels = four_channels(&position);
    if sampled { return channels + elements / vec4(uniforms.sample) * vec4(uniforms.row_channels); }
    return channels;
}

// An element's channel, with general axes. A row has `inner` elements: those of a plane, or, if `keeps_last`, one of
// each of `inner` channels.
fn channel_along_axes(element: u32) -> u32 {
    let row = kept_index(uniforms.kept_axes, element / uniforms.inner);
    if keeps_last { return row * uniforms.inner + element % uniforms.inner; }
    return row;
}
