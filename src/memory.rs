//! Vectors as large as tensors. Running out of memory is an error and does not end the process.

use crate::error::Error;

/// An empty vector with room for this many elements. `what` names it in an error.
///
/// # Errors
///
/// [`Error::HostMemory`].
pub fn room<T>(what: &'static str, elements: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    match values.try_reserve_exact(elements) {
        Ok(()) => Ok(values),
        Err(_) => Err(Error::host_memory(
            what,
            (elements as u64).saturating_mul(size_of::<T>() as u64),
        )),
    }
}

/// Collects an iterator of known length.
///
/// # Errors
///
/// [`Error::HostMemory`].
pub fn collect<T>(
    what: &'static str,
    elements: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, Error> {
    let mut values = room(what, elements.len())?;
    values.extend(elements);
    Ok(values)
}

/// A vector of this many copies of a value.
///
/// # Errors
///
/// [`Error::HostMemory`].
pub fn filled<T: Clone>(what: &'static str, elements: usize, value: T) -> Result<Vec<T>, Error> {
    let mut values = room(what, elements)?;
    values.resize(elements, value);
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn absurd_sizes_are_errors() {
        for (elements, bytes) in [(1 << 59, 1 << 62), (usize::MAX, u64::MAX)] {
            let what = "diff_src";
            let want = Error::host_memory(what, bytes);
            assert_eq!(room::<f64>(what, elements).unwrap_err(), want);
            assert_eq!(filled(what, elements, 0.0).unwrap_err(), want);
            let elements = std::iter::repeat_n(0_u64, elements);
            assert_eq!(collect(what, elements).unwrap_err(), want);
            assert!(want.to_string().contains(&bytes.to_string()));
        }
        assert_eq!(collect("diff_src", [1, 2].into_iter()).unwrap(), [1, 2]);
        assert_eq!(filled("diff_src", 2, 0).unwrap(), [0, 0]);
    }
}
