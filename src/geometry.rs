//! Shapes, layouts and axes: what folds to (outer, channels, inner), and every length.

use crate::{DataFormat, Error};
use std::ops::RangeInclusive;

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

    /// Planes: the consecutive elements of one channel at one outer index.
    pub fn planes(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.channels)
    }
}

/// How a tensor's axes are divided between channels and reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Elements of the leading reduced axes, of all channels, and of the last axes if those are reduced.
    pub grid: Grid,
    /// The order of the axes, where it is not that of the grid.
    pub general: Option<GeneralAxes>,
}

impl From<Grid> for Layout {
    fn from(grid: Grid) -> Self {
        Self {
            grid,
            general: None,
        }
    }
}

/// Axes in any order: the leading ones, kept by the parameters or reduced, and then `width` elements of
/// the last one. If that is kept, `width` divides the channels and is a multiple of 4, or else the elements of a batch
/// are one and in one piece; if it is reduced, or folded into the leading axes with a width of 1, the grid's `inner` is
/// the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeneralAxes {
    pub sizes: [u32; MAX_RANK],
    /// Bit a is set if axis a is kept.
    pub kept: u32,
    pub width: u32,
    /// Whether the last axis, of `width`, is kept.
    pub keeps_last: bool,
}

impl GeneralAxes {
    /// Whether the elements with one index over the kept leading axes are in one piece: the first axis is the only one of
    /// these.
    pub fn batches_in_one_piece(&self) -> bool {
        self.keeps_last && self.kept == 1
    }
}

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

/// The layout of a tensor whose parameters have its rank, and size 1 along the axes that are reduced.
pub(crate) fn broadcast_layout(shape: &[usize], param_shape: &[usize]) -> Result<Layout, Error> {
    let rank = shape.len();
    check_rank("src", 1..=MAX_RANK, rank)?;
    check_rank("mean, variance and gamma", rank..=rank, param_shape.len())?;
    elements("src", shape)?;
    // Neighbouring axes of one kind fold; an axis of size 1 is of either kind.
    let mut groups: Vec<(u32, bool)> = Vec::new();
    for (axis, (&size, &param)) in shape.iter().zip(param_shape).enumerate() {
        if param != 1 && param != size {
            return Err(Error::Argument {
                argument: "mean, variance and gamma",
                expected: format!("size 1 or {size} along axis {axis}"),
                got: param.to_string(),
            });
        }
        let kept = param == size;
        if size == 1 {
            continue;
        }
        match groups.last_mut() {
            Some((folded, kind)) if *kind == kept => {
                *folded = product(&[*folded as usize, size])?;
            }
            _ => groups.push((product(&[size])?, kept)),
        }
    }
    let grid = |outer, channels, inner| Grid {
        outer,
        channels,
        inner,
    };
    let plain = match *groups.as_slice() {
        [] => Some(grid(1, 1, 1)),
        [(a, false)] => Some(grid(1, 1, a)),
        [(c, true)] => Some(grid(1, c, 1)),
        [(a, false), (c, true)] => Some(grid(a, c, 1)),
        [(c, true), (x, false)] => Some(grid(1, c, x)),
        [(a, false), (c, true), (x, false)] => Some(grid(a, c, x)),
        _ => None,
    };
    if let Some(grid) = plain {
        return Ok(grid.into());
    }
    general_layout(&groups)
}

fn general_layout(groups: &[(u32, bool)]) -> Result<Layout, Error> {
    let of_kind = |kept: bool, groups: &[(u32, bool)]| {
        let sizes = groups.iter().filter(|group| group.1 == kept);
        product(&sizes.map(|group| group.0 as usize).collect::<Vec<_>>())
    };
    let (width, keeps_last, leading) = match groups {
        [leading @ .., (last, false)] => (*last, false, leading),
        [leading @ .., (last, true)] if last.is_multiple_of(4) => (*last, true, leading),
        [(_, true), (rows, false), (last, true)]
            if (u64::from(*rows) * u64::from(*last)).is_multiple_of(4) =>
        {
            (*last, true, groups.split_at(2).0)
        }
        _ => (1, false, groups),
    };
    let mut general = GeneralAxes {
        sizes: [1; MAX_RANK],
        kept: 0,
        width,
        keeps_last,
    };
    let slots = general.sizes.iter_mut().enumerate();
    for ((axis, slot), &(size, kept)) in slots.zip(leading) {
        *slot = size;
        general.kept |= u32::from(kept) << axis;
    }
    Ok(Layout {
        grid: Grid {
            outer: of_kind(false, leading)?,
            channels: of_kind(true, groups)?,
            inner: if keeps_last { 1 } else { width },
        },
        general: Some(general),
    })
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
    check_rank("src", 2..=MAX_RANK, shape.len())?;
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

/// A group-norm tensor: samples of channels, some of which, side by side, share statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// The channels of all samples, each for itself, as channels.
    pub layout: Layout,
    /// How many they are.
    pub cells: u32,
    /// Channels of a sample, and of a group.
    pub channels: u32,
    pub group_channels: u32,
    /// Groups of all samples.
    pub count: u32,
    pub samples: u32,
}

impl Groups {
    /// Elements of a group.
    pub fn group_elements(&self) -> u64 {
        u64::from(self.group_channels) * self.layout.grid.count()
    }

    /// Those of some of the samples.
    pub fn of_samples(&self, samples: u32) -> Result<Self, Error> {
        let inner = self.layout.grid.count() as usize;
        let (samples, channels) = (samples as usize, self.channels as usize);
        let groups = self.channels.checked_div(self.group_channels).unwrap_or(0) as usize;
        match self.layout.general {
            Some(_) => group_norm_layout(&[samples, inner, channels], DataFormat::Nxc, groups),
            None => group_norm_layout(&[samples, channels, inner], DataFormat::Ncx, groups),
        }
    }
}

/// The groups of a tensor's samples, so many of each.
pub(crate) fn group_norm_layout(
    shape: &[usize],
    format: DataFormat,
    groups: usize,
) -> Result<Groups, Error> {
    check_rank("src", 2..=MAX_RANK, shape.len())?;
    elements("src", shape)?;
    let axis = match format {
        DataFormat::Ncx => 1,
        DataFormat::Nxc => shape.len() - 1,
    };
    let size = |axis: usize| shape.get(axis).copied().unwrap_or(1);
    let (samples, channels) = (size(0), size(axis));
    let inner = shape.iter().enumerate();
    let inner = inner.filter(|&(at, _)| at > 0 && at != axis);
    let inner: Vec<_> = inner.map(|(_, &size)| size).collect();
    let cells = product(&[samples, channels])?;
    let inner = product(&inner)?;
    let layout = match format {
        DataFormat::Ncx => Grid {
            outer: 1,
            channels: cells,
            inner,
        }
        .into(),
        DataFormat::Nxc => {
            let inner = inner as usize;
            broadcast_layout(&[samples, inner, channels], &[samples, 1, channels])?
        }
    };
    // No groups divide no channels.
    if !channels.is_multiple_of(groups) {
        return Err(Error::Argument {
            argument: "groups",
            expected: format!("a number from 1 on that divides the {channels} channels"),
            got: groups.to_string(),
        });
    }
    let group_channels = channels.checked_div(groups).unwrap_or(0);
    Ok(Groups {
        layout,
        cells,
        channels: product(&[channels])?,
        group_channels: product(&[group_channels])?,
        count: product(&[samples, groups])?,
        samples: product(&[samples])?,
    })
}

/// Rows and columns of a layer-norm tensor whose axes from `begin_norm_axis` on are normalized.
pub(crate) fn layer_norm_rows(shape: &[usize], begin_norm_axis: i64) -> Result<(u32, u32), Error> {
    let rank = shape.len();
    check_rank("src", 1..=MAX_RANK, rank)?;
    elements("src", shape)?;
    let axis = first_row_axis(rank, begin_norm_axis);
    let Some((rows, columns)) = axis.map(|axis| shape.split_at(axis)) else {
        return Err(Error::Argument {
            argument: "begin_norm_axis",
            expected: format!("an axis from -{rank} to {}", rank - 1),
            got: begin_norm_axis.to_string(),
        });
    };
    Ok((product(rows)?, product(columns)?))
}

/// An axis that may be counted from the end, counted from the start; none if there is no such axis.
pub(crate) fn first_row_axis(rank: usize, axis: i64) -> Option<usize> {
    let axis = match axis {
        axis if axis < 0 => axis.checked_add(rank as i64)?,
        axis => axis,
    };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
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
    fn folds_any_axes() {
        let fold = |shape: &[usize], params: &[usize]| broadcast_layout(shape, params).unwrap();
        assert_eq!(fold(&[4, 3, 2, 2], &[1, 3, 1, 1]), grid(4, 3, 4).into());
        assert_eq!(fold(&[4, 3, 2, 2], &[4, 3, 1, 1]), grid(1, 12, 4).into());
        assert_eq!(fold(&[4, 3, 2, 2], &[1, 1, 1, 1]), grid(1, 1, 48).into());
        assert_eq!(fold(&[4, 3, 2, 2], &[4, 3, 2, 2]), grid(1, 48, 1).into());
        assert_eq!(fold(&[4, 1, 2, 5], &[1, 1, 1, 5]), grid(8, 5, 1).into());
        assert_eq!(fold(&[1, 1], &[1, 1]), grid(1, 1, 1).into());
        assert_eq!(fold(&[0, 3], &[1, 3]), grid(0, 3, 1).into());
        let general = |shape, params| {
            let layout = fold(shape, params);
            (layout.grid, layout.general.unwrap())
        };
        let (folded, axes) = general(&[2, 3, 5, 7], &[2, 1, 5, 1]);
        assert_eq!(folded, grid(3, 10, 7));
        assert_eq!((axes.sizes, axes.kept), ([2, 3, 5, 1, 1, 1, 1, 1], 0b101));
        assert_eq!((axes.width, axes.keeps_last), (7, false));
        let (folded, axes) = general(&[2, 3, 8], &[2, 1, 8]);
        assert_eq!(folded, grid(3, 16, 1));
        assert_eq!((axes.kept, axes.width, axes.keeps_last), (0b01, 8, true));
        let (folded, axes) = general(&[2, 12, 5], &[2, 1, 5]);
        assert_eq!(folded, grid(12, 10, 1));
        assert_eq!((axes.kept, axes.width, axes.keeps_last), (0b01, 5, true));
        let (folded, axes) = general(&[2, 3, 5], &[2, 1, 5]);
        assert_eq!(folded, grid(3, 10, 1));
        assert_eq!((axes.kept, axes.width, axes.keeps_last), (0b101, 1, false));
        let error = broadcast_layout(&[2, 3], &[2, 4]).unwrap_err();
        assert!(error.to_string().contains("along axis 1, got 4"), "{error}");
        assert!(matches!(
            broadcast_layout(&[2, 3], &[3]),
            Err(Error::Rank { .. })
        ));
        assert!(matches!(
            broadcast_layout(&[], &[]),
            Err(Error::Rank { .. })
        ));
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
