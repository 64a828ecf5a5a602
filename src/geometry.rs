//! Checks of shapes and lengths.

use crate::error::Error;
use std::ops::RangeInclusive;

/// The largest number of elements that a kernel's 32-bit indices reach, with room for the steps of its loops.
pub(crate) const MAX_ELEMENTS: u64 = (1 << 32) - (1 << 20);

/// The largest rank of a shape.
pub(crate) const MAX_RANK: usize = 8;

pub(crate) fn check_rank(
    tensor: &'static str,
    allowed: RangeInclusive<usize>,
    got: usize,
) -> Result<(), Error> {
    if allowed.contains(&got) {
        Ok(())
    } else {
        Err(Error::Rank {
            tensor,
            min: *allowed.start(),
            max: *allowed.end(),
            got,
        })
    }
}

/// An error unless the parameters' shape has src's rank and, along each axis, src's size or 1.
pub(crate) fn check_broadcast(shape: &[usize], param_shape: &[usize]) -> Result<(), Error> {
    let rank = shape.len();
    check_rank("src", 1..=MAX_RANK, rank)?;
    check_rank("parameters", rank..=rank, param_shape.len())?;
    elements("src", shape)?;
    for (axis, (&size, &param)) in shape.iter().zip(param_shape).enumerate() {
        if param != 1 && param != size {
            return Err(Error::argument(
                "parameters",
                format!("size 1 or {size} along axis {axis}"),
                param,
            ));
        }
    }
    Ok(())
}

/// The number of elements of a shape; an error if it is too large.
pub(crate) fn elements(what: &'static str, shape: &[usize]) -> Result<u64, Error> {
    let overflow = || Error::SizeOverflow {
        what,
        shape: shape.to_vec(),
        limit: MAX_ELEMENTS,
    };
    if shape.contains(&0) {
        // Kernels and callers multiply the other sizes even if one is 0.
        let rest: Vec<usize> = shape.iter().copied().filter(|&d| d != 0).collect();
        return elements(what, &rest).map(|_| 0).map_err(|_| overflow());
    }
    let product = shape.iter().try_fold(1u64, |product, &dim| {
        product.checked_mul(u64::try_from(dim).ok()?)
    });
    match product {
        Some(product) if product <= MAX_ELEMENTS => Ok(product),
        _ => Err(overflow()),
    }
}

/// An error if a shape has no channel axis.
pub(crate) fn check_channels(shape: &[usize]) -> Result<(), Error> {
    check_rank("src", 2..=MAX_RANK, shape.len())?;
    elements("src", shape).map(drop)
}

/// An error if the number of groups does not divide the channels, which are the size of `axis`.
pub(crate) fn check_groups(shape: &[usize], axis: usize, groups: usize) -> Result<(), Error> {
    check_channels(shape)?;
    let size = |axis: usize| shape.get(axis).copied().unwrap_or(1);
    let (samples, channels) = (size(0), size(axis));
    // Zero groups divide zero channels.
    if !channels.is_multiple_of(groups) {
        return Err(Error::argument(
            "groups",
            format!("a positive number that divides the {channels} channels"),
            groups,
        ));
    }
    elements("src", &[samples, groups]).map(drop)
}

/// An error if rows of this shape cannot begin at this axis.
pub(crate) fn check_rows(shape: &[usize], begin_norm_axis: i64) -> Result<(), Error> {
    let rank = shape.len();
    check_rank("src", 1..=MAX_RANK, rank)?;
    elements("src", shape)?;
    match axis_from_start(rank, begin_norm_axis) {
        Some(_) => Ok(()),
        None => Err(Error::argument(
            "begin_norm_axis",
            format!("an axis from -{rank} to {}", rank - 1),
            begin_norm_axis,
        )),
    }
}

/// Converts an axis that may count from the end to one that counts from the start; none if there is no such axis.
pub(crate) fn axis_from_start(rank: usize, axis: i64) -> Option<usize> {
    let axis = match axis {
        axis if axis < 0 => axis.checked_add(rank as i64)?,
        axis => axis,
    };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
}

/// An error unless these are some different axes of a shape of this rank.
pub(crate) fn check_axes(argument: &'static str, rank: usize, axes: &[i64]) -> Result<(), Error> {
    let refused = |expected: String, got: i64| Err(Error::argument(argument, expected, got));
    let mut found = [false; MAX_RANK];
    for &axis in axes {
        let place = axis_from_start(rank, axis).and_then(|axis| found.get_mut(axis));
        match place {
            None => {
                return refused(
                    format!("axes from -{rank} to {}", rank.saturating_sub(1)),
                    axis,
                );
            }
            Some(true) => return refused("each axis once".to_owned(), axis),
            Some(place) => *place = true,
        }
    }
    Ok(())
}

/// An error if an argument does not have the number of elements that the shape requires.
pub(crate) fn check_length(tensor: &'static str, expected: u64, got: usize) -> Result<(), Error> {
    if got as u64 == expected {
        Ok(())
    } else {
        Err(Error::Length {
            tensor,
            expected: usize::try_from(expected).unwrap_or(usize::MAX),
            got,
            place: String::new(),
            hint: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_begin_at_an_axis() {
        for axis in [-1, 1, 0, -3] {
            assert_eq!(check_rows(&[2, 3, 5], axis), Ok(()));
        }
        for axis in [3, -4, i64::MIN, i64::MAX] {
            let error = check_rows(&[2, 3, 5], axis);
            assert!(matches!(error, Err(Error::Argument { .. })), "{axis}");
        }
        let ranks = [vec![], vec![1; 9]];
        assert!(ranks.iter().all(|s| check_rows(s, 0).is_err()));
    }

    #[test]
    fn refuses_axes() {
        for axes in [&[][..], &[0], &[1, -3], &[-1, 1, 0]] {
            assert_eq!(check_axes("axes", 3, axes), Ok(()), "{axes:?}");
        }
        for axes in [&[3][..], &[-4], &[i64::MIN], &[1, -2], &[0, 1, 0]] {
            let error = check_axes("axes", 3, axes);
            assert!(matches!(error, Err(Error::Argument { .. })), "{axes:?}");
        }
    }

    #[test]
    fn refuses_ranks_and_overflow() {
        for rank in [0, 1, 9] {
            let error = check_channels(&vec![1; rank]).unwrap_err();
            assert!(matches!(error, Error::Rank { got, .. } if got == rank));
        }
        for shape in [
            vec![usize::MAX, 2],
            vec![1 << 31, 2],
            vec![0, usize::MAX, usize::MAX],
        ] {
            let error = check_channels(&shape).unwrap_err();
            assert!(matches!(error, Error::SizeOverflow { .. }), "{shape:?}");
        }
        let error = check_broadcast(&[2, 3], &[2, 4]).unwrap_err();
        assert!(error.to_string().contains("along axis 1, got 4"), "{error}");
        for (shape, params) in [(&[2, 3][..], &[3][..]), (&[], &[])] {
            let error = check_broadcast(shape, params);
            assert!(matches!(error, Err(Error::Rank { .. })));
        }
    }
}
