//! Vectors as large as tensors. Where memory ends they are an error, and not the end of the process.

use crate::Error;
use bytemuck::Zeroable;

/// An empty vector with room for so many elements.
pub(crate) fn room<T>(what: &'static str, elements: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    match values.try_reserve_exact(elements) {
        Ok(()) => Ok(values),
        Err(_) => Err(Error::host_memory(
            what,
            (elements as u64).saturating_mul(size_of::<T>() as u64),
        )),
    }
}

/// The elements of an iterator that knows their number.
pub(crate) fn collect<T>(
    what: &'static str,
    elements: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, Error> {
    let mut values = room(what, elements.len())?;
    values.extend(elements);
    Ok(values)
}

/// So many zeros.
pub(crate) fn zeroed<T: Zeroable + Clone>(
    what: &'static str,
    elements: u64,
) -> Result<Vec<T>, Error> {
    let elements = usize::try_from(elements).unwrap_or(usize::MAX);
    let mut values = room(what, elements)?;
    values.resize(elements, T::zeroed());
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
            let count = elements as u64;
            let elements = std::iter::repeat_n(0_u64, elements);
            assert_eq!(collect(what, elements).unwrap_err(), want);
            assert_eq!(zeroed::<f64>(what, count).unwrap_err(), want);
            assert!(want.to_string().contains(&bytes.to_string()));
        }
        assert_eq!(collect("diff_src", [1, 2].into_iter()).unwrap(), [1, 2]);
        assert_eq!(zeroed::<u32>("diff_src", 2).unwrap(), [0, 0]);
    }
}
