//! Shapes: what a layer takes, and every length.

use crate::Error;
use std::ops::RangeInclusive;

/// Elements that a kernel's 32-bit indices reach, with room for the steps of its loops.
pub(crate) const MAX_ELEMENTS: u64 = (1 << 32) - (1 << 20);

/// The largest rank of a shape.
pub(crate) const MAX_RANK: usize = 8;

pub(crate) fn check_rank(
    tensor: &'static str,
    allowed: RangeInclusive<usize>,
    got: usize,
) -> Result<(), Error> {
    match allowed.contains(&got) {
        true => Ok(()),
        false => Err(Error::Rank {
            tensor,
            min: *allowed.start(),
            max: *allowed.end(),
            got,
        }),
    }
}

/// An error if there is no tensor whose parameters have its rank, and size 1 along the axes that are reduced.
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

/// Elements of a shape, checked.
pub(crate) fn elements(what: &'static str, shape: &[usize]) -> Result<u64, Error> {
    let overflow = || Error::SizeOverflow {
        what,
        shape: shape.to_vec(),
        limit: MAX_ELEMENTS,
    };
    if shape.contains(&0) {
        // Dimensions beside a 0 still become numbers that kernels and callers multiply.
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

/// An error if a shape has no axis of channels.
pub(crate) fn check_channels(shape: &[usize]) -> Result<(), Error> {
    check_rank("src", 2..=MAX_RANK, shape.len())?;
    elements("src", shape).map(drop)
}

/// An error if so many groups do not divide a sample's channels, those of an axis.
pub(crate) fn check_groups(shape: &[usize], axis: usize, groups: usize) -> Result<(), Error> {
    check_channels(shape)?;
    let size = |axis: usize| shape.get(axis).copied().unwrap_or(1);
    let (samples, channels) = (size(0), size(axis));
    // No groups divide no channels.
    if !channels.is_multiple_of(groups) {
        return Err(Error::argument(
            "groups",
            format!("a number from 1 on that divides the {channels} channels"),
            groups,
        ));
    }
    elements("src", &[samples, groups]).map(drop)
}

/// An error if a shape has no rows that begin at an axis.
pub(crate) fn check_rows(shape: &[usize], begin_norm_axis: i64) -> Result<(), Error> {
    let rank = shape.len();
    check_rank("src", 1..=MAX_RANK, rank)?;
    elements("src", shape)?;
    match first_row_axis(rank, begin_norm_axis) {
        Some(_) => Ok(()),
        None => Err(Error::argument(
            "begin_norm_axis",
            format!("an axis from -{rank} to {}", rank - 1),
            begin_norm_axis,
        )),
    }
}

/// An axis that may be counted from the end, counted from the start; none if there is no such axis.
pub(crate) fn first_row_axis(rank: usize, axis: i64) -> Option<usize> {
    let axis = match axis {
        axis if axis < 0 => axis.checked_add(rank as i64)?,
        axis => axis,
    };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
}

/// An argument's number of elements against what the shape asks for.
pub(crate) fn check_length(tensor: &'static str, expected: u64, got: usize) -> Result<(), Error> {
    match got as u64 == expected {
        true => Ok(()),
        false => Err(Error::Length {
            tensor,
            expected: usize::try_from(expected).unwrap_or(usize::MAX),
            got,
        }),
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
