//! Vectors as large as tensors. Where memory ends they are an error, and not the end of the process.

use wgpu_norm::Error;

/// So many times the same value.
pub fn filled<T: Clone>(what: &'static str, elements: usize, value: T) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    if values.try_reserve_exact(elements).is_err() {
        let bytes = (elements as u64).saturating_mul(size_of::<T>() as u64);
        return Err(Error::host_memory(what, bytes));
    }
    values.resize(elements, value);
    Ok(values)
}

/// The same values again.
pub fn copied<T: Copy>(what: &'static str, values: &[T]) -> Result<Vec<T>, Error> {
    collected(what, values.iter().copied())
}

/// So many values that an iterator gives.
pub fn collected<T>(
    what: &'static str,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, Error> {
    let mut all = Vec::new();
    if all.try_reserve_exact(values.len()).is_err() {
        let bytes = (values.len() as u64).saturating_mul(size_of::<T>() as u64);
        return Err(Error::host_memory(what, bytes));
    }
    all.extend(values);
    Ok(all)
}
