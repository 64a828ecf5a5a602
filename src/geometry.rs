//! Shapes, layouts and axes: what folds to (outer, channels, inner), and every length.

use crate::{DataFormat, Error};

/// Elements that a kernel's 32-bit indices reach, with room for the steps of its loops.
pub(crate) const MAX_ELEMENTS: u64 = (1 << 32) - (1 << 20);

/// The largest rank of a shape.
pub(crate) const MAX_RANK: usize = 8;

/// A tensor whose channel index is the middle one of three: element (n, c, x) is at
/// (n · channels + c) · inner + x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub outer: u32,
    pub channels: u32,
    pub inner: u32,
}

impl Grid {
    /// Elements of the tensor.
    pub fn elements(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.channels) * u64::from(self.inner)
    }

    /// Elements of a channel.
    pub fn count(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.inner)
    }

    /// Runs: the consecutive elements of one channel at one outer index.
    pub fn runs(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.channels)
    }
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

/// The grid of a batch-norm tensor.
pub(crate) fn batch_norm_grid(shape: &[usize], format: DataFormat) -> Result<Grid, Error> {
    if shape.len() < 2 || shape.len() > MAX_RANK {
        return Err(Error::Rank {
            tensor: "src",
            min: 2,
            max: MAX_RANK,
            got: shape.len(),
        });
    }
    elements("src", shape)?;
    let axis = match format {
        DataFormat::Ncx => 1,
        DataFormat::Nxc => shape.len() - 1,
    };
    let (outer, rest) = shape.split_at(axis);
    let (channels, inner) = rest.split_at(1);
    Ok(Grid {
        outer: product(outer)?,
        channels: product(channels)?,
        inner: product(inner)?,
    })
}

/// Rows and columns of a layer-norm tensor whose axes from `begin_norm_axis` on are normalized.
pub(crate) fn layer_norm_rows(shape: &[usize], begin_norm_axis: i64) -> Result<(u32, u32), Error> {
    let rank = shape.len();
    if rank == 0 || rank > MAX_RANK {
        return Err(Error::Rank {
            tensor: "src",
            min: 1,
            max: MAX_RANK,
            got: rank,
        });
    }
    elements("src", shape)?;
    let axis = match begin_norm_axis {
        axis if axis < 0 => axis.checked_add(rank as i64),
        axis => Some(axis),
    };
    let axis = axis.and_then(|axis| usize::try_from(axis).ok());
    let Some((rows, columns)) = axis
        .filter(|&axis| axis < rank)
        .map(|axis| shape.split_at(axis))
    else {
        return Err(Error::Argument {
            argument: "begin_norm_axis",
            expected: format!("an axis from -{rank} to {}", rank - 1),
            got: begin_norm_axis.to_string(),
        });
    };
    Ok((product(rows)?, product(columns)?))
}

fn product(dims: &[usize]) -> Result<u32, Error> {
    elements("src", dims).and_then(|product| {
        u32::try_from(product).map_err(|_| Error::SizeOverflow {
            what: "src",
            shape: dims.to_vec(),
            limit: MAX_ELEMENTS,
        })
    })
}

/// An argument's number of elements against what the shape asks for.
pub(crate) fn check_length(tensor: &'static str, expected: u64, got: usize) -> Result<(), Error> {
    if got as u64 == expected {
        Ok(())
    } else {
        Err(Error::Length {
            tensor,
            expected: usize::try_from(expected).unwrap_or(usize::MAX),
            got,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn grid(outer: u32, channels: u32, inner: u32) -> Grid {
        Grid {
            outer,
            channels,
            inner,
        }
    }

    #[test]
    fn folds_both_formats() {
        let fold = |shape: &[usize], format| batch_norm_grid(shape, format).unwrap();
        assert_eq!(fold(&[5, 3, 4, 2], DataFormat::Ncx), grid(5, 3, 8));
        assert_eq!(fold(&[5, 3, 4, 2], DataFormat::Nxc), grid(60, 2, 1));
        assert_eq!(fold(&[5, 3], DataFormat::Ncx), grid(5, 3, 1));
        assert_eq!(fold(&[5, 3], DataFormat::Nxc), grid(5, 3, 1));
        assert_eq!(fold(&[0, 3, 4], DataFormat::Ncx), grid(0, 3, 4));
    }

    #[test]
    fn rows_and_columns() {
        let fold = |axis| layer_norm_rows(&[2, 3, 5], axis);
        assert_eq!(fold(-1), Ok((6, 5)));
        assert_eq!(fold(1), Ok((2, 15)));
        assert_eq!(fold(0), Ok((1, 30)));
        assert_eq!(fold(-3), Ok((1, 30)));
        for axis in [3, -4, i64::MIN, i64::MAX] {
            assert!(matches!(fold(axis), Err(Error::Argument { .. })), "{axis}");
        }
        let ranks = [vec![], vec![1; 9]];
        assert!(ranks.iter().all(|s| layer_norm_rows(s, 0).is_err()));
    }

    #[test]
    fn refuses_ranks_and_overflow() {
        for rank in [0, 1, 9] {
            let error = batch_norm_grid(&vec![1; rank], DataFormat::Ncx).unwrap_err();
            assert!(matches!(error, Error::Rank { got, .. } if got == rank));
        }
        for shape in [
            vec![usize::MAX, 2],
            vec![1 << 31, 2],
            vec![0, usize::MAX, usize::MAX],
        ] {
            let error = batch_norm_grid(&shape, DataFormat::Ncx).unwrap_err();
            assert!(matches!(error, Error::SizeOverflow { .. }), "{shape:?}");
        }
    }
}
