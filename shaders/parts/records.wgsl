// Records of the workspace: four words that hold a channel's coefficients, or a partial sum of it.

// Numbers that an operator needs besides its tensors.
struct Scalars {
    epsilon: real,
    inverse_count: real, // 1 / the number of elements that share statistics
    running_weight: real, // the batch's in running statistics
    running_correction: real, // 1 where the running variance is unbiased, else 0
}

// Four records side by side, word by word.
struct Words {
    x: real4,
    y: real4,
    z: real4,
    w: real4,
}

fn side_by_side(a: real4, b: real4, c: real4, d: real4) -> Words {
    return Words(real4(a.x, b.x, c.x, d.x), real4(a.y, b.y, c.y, d.y), real4(a.z, b.z, c.z, d.z), real4(a.w, b.w, c.w, d.w));
}

fn load_records(index: vec4<u32>) -> Words {
    return side_by_side(load_workspace(index.x), load_workspace(index.y), load_workspace(index.z), load_workspace(index.w));
}

// One record for four elements.
fn splat(record: real4) -> Words {
    return side_by_side(record, record, record, record);
}
