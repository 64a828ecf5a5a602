//! The views that traversals have of a problem's axes: planes and rows of channels, groups of channels, rows.

use super::sizes::{div_ceil, word};
use crate::geometry::MAX_RANK;
use crate::kernels::{GeneralSizes, GroupSizes, Sharing};
use crate::operation::{Axis, Channels, Norm, Operation};

/// Channels with fewer elements side by side are read as rows of columns, unless one dispatch does it all: for a small
/// tensor, or for planes of 8 elements or more that are channels of their own.
const SHORT_PLANE: u32 = 32;

/// Planes of this many elements or more are fused whatever `SHORT_PLANE` says, where each is a channel of its own: if
/// they were read as columns, every element would have a partial sum (measured on software drivers: 1.4 to 2.8 times
/// the time).
pub(crate) const LONE_PLANE: u32 = 8;

/// A tensor whose channel index is the middle one of three: element (n, c, x) is at
/// (n · channels + c) · inner + x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub outer: u32,
    pub channels: u32,
    pub inner: u32,
}

impl Grid {
    pub const fn new(outer: u32, channels: u32, inner: u32) -> Self {
        Self {
            outer,
            channels,
            inner,
        }
    }

    /// Elements of the tensor.
    pub fn elements(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.channels) * u64::from(self.inner)
    }

    /// Elements in a channel.
    pub fn count(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.inner)
    }

    /// Whether planes are long enough to be read as planes; otherwise they are read as rows of columns.
    pub fn has_planes(&self) -> bool {
        self.inner >= SHORT_PLANE
    }

    /// The number of planes, each the consecutive elements of one channel at one outer index.
    pub fn planes(&self) -> u64 {
        u64::from(self.outer) * u64::from(self.channels)
    }
}

/// How a tensor's axes are divided between channels and reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The sizes of the leading reduced axes, of all channels, and of the last axes if those are reduced.
    pub grid: Grid,
    /// The order of the axes, where it is not that of the grid.
    pub general: Option<GeneralAxes>,
}

impl From<Grid> for Layout {
    fn from(grid: Grid) -> Self {
        let general = None;
        Self { grid, general }
    }
}

/// Axes in any order: the leading ones, kept or reduced, and then the last one, of `width`. If it is reduced, the grid's
/// `inner` is the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeneralAxes {
    pub sizes: [u32; MAX_RANK],
    /// Bit a is set if axis a is kept.
    pub kept: u32,
    pub width: u32,
    /// Whether the last axis is kept.
    pub keeps_last: bool,
}

impl GeneralAxes {
    /// Whether the elements with one index over the kept leading axes are in one piece: only the first leading axis is
    /// kept.
    pub fn batches_in_one_piece(&self) -> bool {
        self.keeps_last && self.kept == 1
    }
}

impl Layout {
    /// The uniforms that describe general axes.
    pub fn sizes(&self) -> GeneralSizes {
        let sizes = |general: GeneralAxes| GeneralSizes {
            axes: general.sizes.into(),
            kept_axes: general.kept,
        };
        self.general.map_or_else(GeneralSizes::none, sizes)
    }
}

/// Channels of samples, of which some share statistics in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// The layout in which the channels of all samples are the channels.
    pub layout: Layout,
    /// Channels in a sample, and in a group.
    pub channels: u32,
    pub group_channels: u32,
    /// The number of groups of all samples.
    pub count: u32,
    /// The channels' axes, if those of a sample or of a group are not side by side.
    pub mixed: Option<MixedAxes>,
    /// The sizes by which elements find their channels, where the channels of a sample alternate.
    pub samples: Option<Samples>,
}

/// The axes of channels, in storage order, and those that statistics and parameters vary along: bit a is set for axis
/// a.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MixedAxes {
    pub sizes: [u32; MAX_RANK],
    pub statistics: u32,
    pub parameters: u32,
}

impl Default for MixedAxes {
    fn default() -> Self {
        Self {
            sizes: [1; MAX_RANK],
            statistics: 0,
            parameters: 0,
        }
    }
}

impl Groups {
    /// The uniforms that describe them.
    pub fn sizes(&self) -> GroupSizes {
        let mixed = self.mixed.unwrap_or_default();
        GroupSizes {
            sharing: Sharing {
                group_channels: self.group_channels,
                statistics: self.count,
                parameters: self.channels,
            },
            axes: mixed.sizes.into(),
            statistics_axes: mixed.statistics,
            parameter_axes: mixed.parameters,
        }
    }

    /// The number of channels of all samples.
    pub fn channels_of_all(&self) -> u32 {
        self.layout.grid.channels
    }

    /// Whether each is a row of several channels, side by side.
    pub fn are_rows(&self) -> bool {
        let side_by_side = self.layout.general.is_none() && self.layout.grid.outer == 1;
        side_by_side && self.mixed.is_none() && self.group_channels > 1
    }
}

/// Elements whose statistics belong to columns and whose parameters belong to rows: `batches` of `rows` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByColumn {
    pub batches: u32,
    pub rows: u32,
    /// Columns of a batch.
    pub columns: u32,
    /// Whether each batch has parameters of its own.
    pub of_samples: bool,
}

impl ByColumn {
    /// Elements of the tensor.
    pub fn elements(&self) -> u64 {
        u64::from(self.rows) * self.statistics()
    }

    /// The length of the statistics: columns of all batches.
    pub fn statistics(&self) -> u64 {
        u64::from(self.batches) * u64::from(self.columns)
    }

    /// The length of gamma and beta.
    pub fn parameters(&self) -> u64 {
        u64::from(self.rows) * u64::from(if self.of_samples { self.batches } else { 1 })
    }

    /// Tiles of so many rows in a batch.
    pub fn row_tiles(&self, tile_rows: u64) -> u64 {
        div_ceil(self.rows.into(), tile_rows)
    }

    /// Whether every row begins at a vec4.
    pub fn is_aligned(&self) -> bool {
        self.columns.is_multiple_of(4)
    }
}

/// Samples in whose rows channels alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Samples {
    pub channels: u32,
    /// Elements in a sample.
    pub elements: u64,
}

/// The axes of src, from the outermost on. Neighbours alike in both flags are folded, and axes of size 1 are left out.
#[derive(Clone, Debug)]
pub(crate) struct Axes(Vec<Axis>);

/// Whether statistics vary along an axis, and parameters do not.
const fn is_line(axis: &Axis) -> bool {
    !axis.reduced && !axis.parameter
}

/// Whether channels vary along an axis: statistics or parameters do.
const fn is_of_channels(axis: &Axis) -> bool {
    !axis.reduced || axis.parameter
}

/// The number of rows, if axes are those of rows, along which parameters vary.
fn number_of_rows(axes: &[Axis]) -> Option<u64> {
    let is_row = |axis: &Axis| axis.reduced && axis.parameter;
    match axes {
        [row] if is_row(row) => Some(1),
        [line, row] if is_line(line) && is_row(row) => Some(line.size as u64),
        _ => None,
    }
}

impl Axes {
    /// The axes of a checked operation.
    pub fn new(operation: &Operation) -> Self {
        // A channel axis of size 1 keeps its neighbours apart, as others do.
        let stays = matches!(operation.norm, Norm::Batch(Channels::Axis(_)));
        let mut folded: Vec<Axis> = Vec::new();
        for axis in operation.axes() {
            match folded.last_mut() {
                _ if axis.size == 1 && !(stays && axis.parameter) => {}
                Some(last) if (last.reduced, last.parameter) == (axis.reduced, axis.parameter) => {
                    last.size *= axis.size;
                }
                _ => folded.push(axis),
            }
        }
        if matches!(operation.norm, Norm::Axes { .. }) && !folded.iter().any(|axis| axis.reduced) {
            // Each element has statistics of its own: a row of one element.
            folded.push(Axis {
                size: 1,
                reduced: true,
                parameter: true,
            });
        }
        Self(folded)
    }

    /// The same axes for `lines` of the separate samples or rows.
    pub fn of_lines(&self, lines: u64) -> Self {
        let mut axes = self.0.clone();
        if let Some(first) = axes.first_mut() {
            first.size = lines as usize;
        }
        axes.retain(|axis| axis.size != 1 || !is_line(axis));
        Self(axes)
    }

    fn product(&self, of: impl Fn(&Axis) -> bool) -> u64 {
        let sizes = self.0.iter().filter(|axis| of(axis));
        sizes.map(|axis| axis.size as u64).product()
    }

    /// Elements of src.
    pub fn elements(&self) -> u64 {
        self.product(|_| true)
    }

    /// The number of lines, which share parameters but not statistics: samples of group norm, or rows.
    pub fn lines(&self) -> u64 {
        self.product(is_line)
    }

    /// The number of samples or rows that follow one another in memory, each with statistics of its own; 1 if their
    /// elements alternate.
    pub fn separate_lines(&self) -> u64 {
        match self.0.as_slice() {
            [first, ..] if first.reduced => 1,
            [first, rest @ ..] if first.parameter || !rest.iter().any(is_line) => first.size as u64,
            _ => 1,
        }
    }

    /// Whether each of these has parameters of its own.
    pub fn have_own_parameters(&self) -> bool {
        self.0.first().is_some_and(|first| first.parameter)
    }

    /// Whether they are those of rows, along which parameters vary.
    pub fn are_rows(&self) -> bool {
        number_of_rows(&self.0).is_some()
    }

    /// The number of neighbouring rows that share parameters, if the elements are rows and each sample has parameters
    /// of its own.
    pub fn rows_of_a_sample(&self) -> Option<u64> {
        let (sample, rows) = self.0.split_first()?;
        let rows = number_of_rows(rows);
        rows.filter(|_| !sample.reduced && sample.parameter)
    }

    /// The elements by column, if statistics are taken over one axis, which is not the last, along which parameters
    /// vary.
    pub fn by_column(&self) -> Option<ByColumn> {
        let (batch, rows, columns) = match self.0.as_slice() {
            [rows, columns] => (None, rows, columns),
            [batch, rows, columns] => (Some(batch), rows, columns),
            _ => return None,
        };
        let is_kept = |axis: &Axis| !axis.reduced;
        let fits = rows.reduced && rows.parameter && is_line(columns) && batch.is_none_or(is_kept);
        fits.then(|| ByColumn {
            batches: batch.map_or(1, |axis| word(axis.size as u64)),
            rows: word(rows.size as u64),
            columns: word(columns.size as u64),
            of_samples: batch.is_some_and(|axis| axis.parameter),
        })
    }

    /// The length of the statistics.
    pub fn statistics(&self) -> u64 {
        self.product(|axis| !axis.reduced)
    }

    /// Elements that share statistics.
    pub fn count(&self) -> u64 {
        self.product(|axis| axis.reduced)
    }

    /// Elements of gamma.
    pub fn parameters(&self) -> u64 {
        self.product(|axis| axis.parameter)
    }

    /// Neighbouring parameters that share statistics.
    pub fn group_parameters(&self) -> u64 {
        self.product(|axis| axis.reduced && axis.parameter)
    }

    /// The axes, each with whether channels vary along it. Neighbours alike are folded.
    fn by_channel(&self) -> Vec<(u32, bool)> {
        let mut axes: Vec<(u32, bool)> = Vec::new();
        for axis in &self.0 {
            let kept = is_of_channels(axis);
            match axes.last_mut() {
                Some((size, kind)) if *kind == kept => *size *= word(axis.size as u64),
                _ => axes.push((word(axis.size as u64), kept)),
            }
        }
        axes
    }

    /// The groups of all samples.
    pub fn groups(&self) -> Groups {
        let axes = self.by_channel();
        let samples = match *axes.as_slice() {
            [(_, true), (rows, false), (channels, true)] => Some(Samples {
                channels,
                elements: u64::from(rows) * u64::from(channels),
            }),
            _ => None,
        };
        Groups {
            layout: layout(&axes),
            channels: word(self.parameters()),
            group_channels: word(self.group_parameters()),
            count: word(self.statistics()),
            mixed: self.mixed(),
            samples,
        }
    }

    /// The axes of channels, unless division finds a channel's statistics and parameters: the axes along which neither
    /// is shared come first, those along which statistics are come last.
    fn mixed(&self) -> Option<MixedAxes> {
        let channels = || self.0.iter().filter(|axis| is_of_channels(axis));
        let place = |axis: &Axis| (axis.parameter, axis.reduced);
        if channels().is_sorted_by_key(place) {
            return None;
        }
        let mut mixed = MixedAxes::default();
        let slots = mixed.sizes.iter_mut().enumerate();
        for ((at, size), axis) in slots.zip(channels()) {
            *size = word(axis.size as u64);
            mixed.statistics |= u32::from(!axis.reduced) << at;
            mixed.parameters |= u32::from(axis.parameter) << at;
        }
        Some(mixed)
    }

    /// The elements by row, for the statistics; the parameters vary by column.
    pub fn by_row(&self) -> Grid {
        Grid::new(1, word(self.statistics()), word(self.count()))
    }
}

/// The layout of channels, for group norm of each sample's, whose elements share statistics and parameters: by the
/// axes, each with whether channels vary along it.
fn layout(axes: &[(u32, bool)]) -> Layout {
    let grid = match *axes {
        [] => Grid::new(1, 1, 1),
        [(a, false)] => Grid::new(1, 1, a),
        [(c, true)] => Grid::new(1, c, 1),
        [(a, false), (c, true)] => Grid::new(a, c, 1),
        [(c, true), (x, false)] => Grid::new(1, c, x),
        [(a, false), (c, true), (x, false)] => Grid::new(a, c, x),
        _ => return general_layout(axes),
    };
    grid.into()
}

/// The layout of axes in any order, each with whether it is kept.
fn general_layout(axes: &[(u32, bool)]) -> Layout {
    let of_kind = |kept: bool, axes: &[(u32, bool)]| -> u32 {
        let sizes = axes.iter().filter(|axis| axis.1 == kept);
        sizes.map(|axis| axis.0).product()
    };
    let (&(width, keeps_last), leading) = axes.split_last().unwrap_or((&(1, false), axes));
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
    let inner = if keeps_last { 1 } else { width };
    Layout {
        grid: Grid::new(of_kind(false, leading), of_kind(true, axes), inner),
        general: Some(general),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::element::DType;
    use crate::operation::Forward;
    use crate::options::DataFormat;

    fn grid(outer: u32, channels: u32, inner: u32) -> Grid {
        Grid::new(outer, channels, inner)
    }

    fn axes(norm: Norm, shape: &[usize]) -> Axes {
        Axes::new(&Operation::new(norm, Forward::default(), shape, DType::F32))
    }

    #[test]
    fn folds_both_formats() {
        let fold = |shape: &[usize], format| {
            axes(Norm::Batch(Channels::Axis(format)), shape)
                .groups()
                .layout
        };
        assert_eq!(fold(&[5, 3, 4, 2], DataFormat::Ncx), grid(5, 3, 8).into());
        assert_eq!(fold(&[5, 3, 4, 2], DataFormat::Nxc), grid(60, 2, 1).into());
        assert_eq!(fold(&[5, 3], DataFormat::Ncx), grid(5, 3, 1).into());
        assert_eq!(fold(&[5, 3], DataFormat::Nxc), grid(5, 3, 1).into());
        assert_eq!(fold(&[0, 3, 4], DataFormat::Ncx), grid(0, 3, 4).into());
        assert_eq!(fold(&[5, 1, 4], DataFormat::Ncx), grid(5, 1, 4).into());
        assert_eq!(fold(&[5, 4, 1], DataFormat::Nxc), grid(20, 1, 1).into());
    }

    #[test]
    fn folds_any_axes() {
        let fold = |shape: &[usize], params: &[usize]| {
            let channels = Channels::Broadcast(params.to_vec());
            axes(Norm::Batch(channels), shape).groups().layout
        };
        assert_eq!(fold(&[4, 3, 2, 2], &[1, 3, 1, 1]), grid(4, 3, 4).into());
        assert_eq!(fold(&[4, 3, 2, 2], &[4, 3, 1, 1]), grid(1, 12, 4).into());
        assert_eq!(fold(&[4, 3, 2, 2], &[1, 1, 1, 1]), grid(1, 1, 48).into());
        assert_eq!(fold(&[4, 3, 2, 2], &[4, 3, 2, 2]), grid(1, 48, 1).into());
        assert_eq!(fold(&[4, 1, 2, 5], &[1, 1, 1, 5]), grid(8, 5, 1).into());
        assert_eq!(fold(&[1, 1], &[1, 1]), grid(1, 1, 1).into());
        assert_eq!(fold(&[0, 3], &[1, 3]), grid(0, 3, 1).into());
        let general = |shape, params| {
            let layout = fold(shape, params);
            (layout.grid, layout.general.expect("general axes"))
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
        assert_eq!((axes.kept, axes.width, axes.keeps_last), (0b01, 5, true));
    }

    #[test]
    fn groups_of_some_samples() {
        let ncx = axes(
            Norm::Group {
                groups: 2,
                format: DataFormat::Ncx,
            },
            &[5, 6, 7],
        );
        let groups = ncx.groups();
        assert_eq!(groups.layout, grid(1, 30, 7).into());
        assert_eq!(
            (groups.channels, groups.group_channels, groups.count),
            (6, 3, 10)
        );
        assert_eq!(ncx.of_lines(1).groups().layout, grid(1, 6, 7).into());
        let nxc = axes(
            Norm::Instance {
                format: DataFormat::Nxc,
            },
            &[5, 7, 6],
        );
        assert_eq!(nxc.groups().channels_of_all(), 30);
        assert!(nxc.of_lines(2).groups().layout.general.is_some());
        assert_eq!(nxc.of_lines(1).groups().layout, grid(7, 6, 1).into());
    }

    #[test]
    fn channels_that_are_apart() {
        let groups = |shape: &[usize], axes: &[i64], param_axes: &[i64]| {
            let norm = Norm::Axes {
                axes: axes.to_vec(),
                param_axes: param_axes.to_vec(),
                centered: true,
            };
            super::Axes::new(&Operation::new(norm, Forward::default(), shape, DType::F32)).groups()
        };
        // Group norm by other names.
        let of_groups = groups(&[5, 2, 3, 7], &[2, 3], &[1, 2]);
        assert_eq!(of_groups.layout, grid(1, 30, 7).into());
        assert_eq!(of_groups.mixed, None);
        // Parameters of each sample: the positions of a row are channels.
        let adaptive = groups(&[4, 7, 12], &[2], &[0, 2]);
        assert_eq!(adaptive.layout, grid(1, 336, 1).into());
        let mixed = adaptive.mixed.expect("mixed channels");
        assert_eq!(mixed.sizes[..4], [4, 7, 12, 1]);
        assert_eq!((mixed.statistics, mixed.parameters), (0b011, 0b101));
        // Channels with parameters of each sample.
        let conditional = groups(&[5, 3, 7], &[0, 2], &[0, 1]);
        assert_eq!(conditional.layout, grid(1, 15, 7).into());
        let mixed = conditional.mixed.expect("mixed channels");
        assert_eq!((mixed.statistics, mixed.parameters), (0b10, 0b11));
    }

    #[test]
    fn rows_and_columns() {
        let rows = |begin_norm_axis| axes(Norm::Layer { begin_norm_axis }, &[2, 3, 5]).by_row();
        assert_eq!(rows(-1), grid(1, 6, 5));
        assert_eq!(rows(1), grid(1, 2, 15));
        assert_eq!(rows(0), grid(1, 1, 30));
        assert_eq!(rows(-3), grid(1, 1, 30));
    }
}
