//! Vectors as large as tensors. Where memory ends they are an error, and not the end of the process.

use wgpu_norm::Error;

/// Room for so many values.
pub fn room<T>(what: &'static str, values: usize) -> Result<Vec<T>, Error> {
    let mut room = Vec::new();
    match room.try_reserve_exact(values) {
        Ok(()) => Ok(room),
        Err(_) => {
            let bytes = (values as u64).saturating_mul(size_of::<T>() as u64);
            Err(Error::host_memory(what, bytes))
        }
    }
}

/// So many times the same value.
pub fn filled<T: Clone>(what: &'static str, values: usize, value: T) -> Result<Vec<T>, Error> {
    let mut all = room(what, values)?;
    all.resize(values, value);
    Ok(all)
}

/// The values of an iterator.
pub fn collect<T>(
    what: &'static str,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, Error> {
    let mut all = room(what, values.len())?;
    all.extend(values);
    Ok(all)
}

/// The same values again.
pub fn copied<T: Copy>(what: &'static str, values: &[T]) -> Result<Vec<T>, Error> {
    collect(what, values.iter().copied())
}
