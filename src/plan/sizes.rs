//! Arithmetic on sizes.

/// ⌈a / b⌉; a where b is 0.
pub(crate) fn div_ceil(a: u64, b: u64) -> u64 {
    a.div_ceil(b.max(1))
}

/// A number that the element limit keeps within 32 bits.
pub(crate) fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The most vectors that hold no more than `vec4s` vec4s.
pub(crate) fn most_vectors(vec4s: u32, vector_vec4s: u64) -> u64 {
    (u64::from(vec4s) / vector_vec4s.max(1)).max(1)
}

/// Invocations that share `elements` elements, with at least `vec4s` vec4s for each: a power of two.
pub(crate) fn threads(workgroup_size: u32, elements: u64, vec4s: u32) -> u32 {
    word(div_ceil(elements, 4 * u64::from(vec4s.max(1))))
        .max(1)
        .checked_next_power_of_two()
        .unwrap_or(u32::MAX)
        .min(workgroup_size)
}

/// Vectors that each of the invocations holds: one of a few numbers, for which kernels are compiled.
pub(crate) fn vectors_held(vectors: u64, threads_per_row: u64, most: u64) -> u64 {
    const COMPILED: [u64; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32];
    let vectors = div_ceil(vectors, threads_per_row);
    let held = COMPILED.into_iter().find(|&held| held >= vectors);
    held.map_or(vectors, |held| held.min(most.max(vectors)))
}
