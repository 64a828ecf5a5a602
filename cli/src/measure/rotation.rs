//! Several sets of the same buffers that take turns, so that caches do not improve the results: by a set's next turn,
//! the others have passed through the caches.

use wgpu_norm::{DType, Error, GpuContext};

/// The approximate size in bytes of all sets together; a single set may be larger.
pub const TOTAL: u64 = 1 << 30;

/// The maximum number of sets: for small tensors, latency counts.
const MOST: u64 = 64;

/// The number of sets, each of `bytes`: they fill `total`, but there are at least 2 and at most 64. One is enough if it
/// is as large as `total`, for it evicts itself from any cache.
fn count(bytes: u64, total: u64) -> u64 {
    if bytes >= total {
        return 1;
    }
    (total / bytes.max(1)).clamp(2, MOST)
}

/// Creates the sets, or as many as memory allows, but at least one.
pub fn sets<T>(
    bytes: u64,
    total: u64,
    mut make: impl FnMut(u64) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut sets = Vec::new();
    for index in 0..count(bytes, total) {
        match make(index) {
            Ok(set) => sets.push(set),
            Err(Error::OutOfMemory { .. }) if index > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sets)
}

/// The number of values in a pattern: a prime, so that neighbouring channels and rows differ.
const PATTERN: usize = 65_537;

/// The approximate size in bytes of the buffer that the pattern is copied from.
const PATTERN_BYTES: u64 = 1 << 22;

/// The pattern's mean; its variance is 1.
pub const MEAN: f64 = 0.25;

/// A buffer of repeated random numbers, approximately normal with mean 0.25 and variance 1.
pub fn pattern(gpu: &GpuContext, dtype: DType) -> Result<wgpu::Buffer, Error> {
    let repeats = (PATTERN_BYTES / (PATTERN as u64 * dtype.size())).max(1);
    let mut bytes = dtype
        .encode(normal())
        .repeat(usize::try_from(repeats).unwrap_or(1));
    // Whole words only; a repeat of a 16-bit type has an odd number of values.
    bytes.truncate(bytes.len() / 32 * 32);
    let device = gpu.device();
    let buffer = super::device::storage(device, "pattern", bytes.len() as u64)?;
    super::device::scoped(device, "pattern", bytes.len() as u64, || {
        gpu.queue().write_buffer(&buffer, 0, &bytes);
    })?;
    Ok(buffer)
}

/// Sums of twelve uniform numbers from a fixed seed, shifted and scaled to the exact statistics.
fn normal() -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut values: Vec<f64> = (0..PATTERN)
        .map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0)
        .collect();
    let count = PATTERN as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    for value in &mut values {
        *value = MEAN + (*value - mean) / variance.sqrt();
    }
    values
}

/// Fills a buffer with the pattern, starting at an offset in it.
pub fn fill(
    encoder: &mut wgpu::CommandEncoder,
    pattern: &wgpu::Buffer,
    from: u64,
    buffer: &wgpu::Buffer,
) {
    let from = (from / 4 * 4) % pattern.size().max(4);
    let (mut start, mut offset) = (0, from);
    while start < buffer.size() {
        let bytes = (pattern.size() - offset).min(buffer.size() - start);
        encoder.copy_buffer_to_buffer(pattern, offset, buffer, start, bytes);
        start += bytes;
        offset = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_fill_a_gigabyte() {
        assert_eq!(count(100, TOTAL), 64);
        assert_eq!(count(100 << 20, TOTAL), 10);
        assert_eq!(count(900 << 20, TOTAL), 2);
        assert_eq!(count(2 << 30, TOTAL), 1);
    }

    #[test]
    fn memory_may_end_after_the_first_set() {
        let make = |most: u64| {
            move |index: u64| match index < most {
                true => Ok(index),
                false => Err(Error::out_of_memory("a set", 1)),
            }
        };
        assert_eq!(sets(1 << 28, TOTAL, make(3)).map(|sets| sets.len()), Ok(3));
        assert!(sets(1 << 28, TOTAL, make(0)).is_err());
    }

    #[test]
    fn the_pattern_has_its_statistics() {
        let values = normal();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        assert!((mean - MEAN).abs() < 1e-9 && (variance - 1.0).abs() < 1e-9);
    }
}
