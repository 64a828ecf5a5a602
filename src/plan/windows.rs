//! Cuts a tensor that is larger than a storage binding into windows, at the bounds of tiles that were fixed before: a
//! window never changes which elements are added in which order.

use super::dispatch::{Binding, Requirement};
use super::limits::{MOST_DISPATCHES, Unfit, check_dispatches};
use super::sizes::word;
use crate::error::Error;
use crate::kernels::TileRange;
use crate::profile::{MAX_BINDING, MAX_WINDOW, Profile};
use crate::tensor::Tensor;
use std::ops::Range;

/// A dispatch's share: the units that it does, their tiles, and the elements that it binds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub units: Range<u64>,
    pub tiles: Range<u64>,
    pub elements: Range<u64>,
    /// The elements that the dispatch writes, if it leaves all others alone.
    pub owned: Option<Range<u64>>,
    /// A mask's binding begins at a multiple of this many elements.
    pub mask_unit: u64,
}

/// Windows begin at multiples of this many bytes.
pub(crate) fn alignment(profile: &Profile) -> u64 {
    profile.alignment.max(256)
}

/// A mask's windows begin at multiples of this many elements, of a bit each.
pub(crate) fn mask_unit(profile: &Profile) -> u64 {
    8 * alignment(profile)
}

impl Profile {
    /// Whether a window holds so many bytes, wherever they begin.
    pub(super) fn window_holds(&self, bytes: u64) -> bool {
        bytes + 2 * alignment(self) <= self.longest_window()
    }
}

impl Window {
    /// A tensor bound to this window. A mask, which has a word of 32 bits for 32 elements, is bound from an aligned
    /// position on; what is no data is bound whole.
    pub fn bind(&self, tensor: &Requirement) -> Binding {
        match tensor.tensor {
            Tensor::Mask => {
                let first = self.elements.start / self.mask_unit * self.mask_unit / 32;
                let end = self.elements.end.div_ceil(32).min(tensor.elements);
                Binding::elements(tensor, &(first..end))
            }
            data if data.is_data() => {
                let owned = self.owned.as_ref();
                Binding {
                    owned: owned.map(|elements| Binding::elements(tensor, elements).bytes),
                    ..Binding::elements(tensor, &self.elements)
                }
            }
            _ => Binding::whole(tensor),
        }
    }

    /// Tensors bound to this window.
    pub fn bind_all<'a>(
        &self,
        tensors: impl IntoIterator<Item = &'a Requirement>,
    ) -> impl Iterator<Item = Binding> {
        tensors.into_iter().map(|tensor| self.bind(tensor))
    }

    /// The uniforms that describe a dispatch's tiles of a tensor.
    pub fn tile_range(&self, tensor: &Requirement, workgroups: [u32; 2]) -> TileRange {
        TileRange {
            first_tile: word(self.tiles.start),
            end_tile: word(self.tiles.end),
            grid_width: workgroups[0],
            window: word(self.elements.start),
            length: word(tensor.elements.saturating_sub(self.elements.start)),
        }
    }

    /// The last bound vector, of `vector` elements.
    pub fn last_vector(&self, vector: u64) -> u32 {
        let bound = self.elements.end - self.elements.start;
        word((bound / vector.max(1)).saturating_sub(1))
    }
}

/// A window, with what else a dispatch knows of its share.
pub(crate) trait Share {
    fn window(&self) -> &Window;
}

impl Share for Window {
    fn window(&self) -> &Window {
        self
    }
}

/// Windows over a tensor's units, of so many tiles each; `start(u)` is the first element of unit u and does not
/// decrease. A binding begins at an aligned position and ends with a pair of vec4s, or with the tensor's last vec4.
pub(crate) fn windows(
    profile: &Profile,
    tensor: &Requirement,
    units: Range<u64>,
    unit_tiles: u64,
    start: impl Fn(u64) -> u64,
) -> Result<Vec<Window>, Unfit> {
    let span = |some: Range<u64>| start(some.start)..start(some.end);
    let mut windows = windows_of(profile, tensor, units, span)?;
    for window in &mut windows {
        window.tiles = window.units.start * unit_tiles..window.units.end * unit_tiles;
    }
    Ok(windows)
}

/// Windows over units whose elements need not follow one another: `span` is the range that some units lie in.
pub(crate) fn windows_of(
    profile: &Profile,
    tensor: &Requirement,
    units: Range<u64>,
    span: impl Fn(Range<u64>) -> Range<u64>,
) -> Result<Vec<Window>, Unfit> {
    let alignment = alignment(profile) / tensor.dtype.size();
    let end = tensor.elements.next_multiple_of(4);
    let bound = |from: u64, to: u64| {
        let elements = span(from..to);
        let first = elements.start / alignment * alignment;
        // A vector that reaches into the next unit is bound whole.
        first..elements.end.next_multiple_of(8).min(end)
    };
    let bytes = |from: u64, to: u64| {
        let elements = bound(from, to);
        (elements.end - elements.start) * tensor.dtype.size()
    };
    let most = profile.longest_window();
    if units.start < units.end {
        check_dispatches(bytes(units.start, units.end).div_ceil(most.max(1)))?;
    }
    let mut windows = Vec::new();
    let mut from = units.start;
    while from < units.end {
        let needed = bytes(from, from + 1);
        let what = format_args!("a window of {}", tensor.tensor.name());
        if most < profile.max_binding {
            Error::check_limit(what, MAX_WINDOW, needed, most)
                .map_err(|error| Unfit::Window { needed, error })?;
        } else {
            Error::check_limit(what, MAX_BINDING, needed, most).map_err(Unfit::Room)?;
        }
        // The largest `to` that fits, by bisection.
        let (mut low, mut high) = (from + 1, units.end);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if bytes(from, middle) <= most {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        windows.push(Window {
            units: from..low,
            tiles: from..low,
            elements: bound(from, low),
            owned: None,
            mask_unit: mask_unit(profile),
        });
        from = low;
        let count = windows.len() as u64;
        if count > MOST_DISPATCHES {
            // The number of all windows, if the rest of the units needs as many for its share.
            let done = from - units.start;
            check_dispatches((units.end - units.start).div_ceil(done) * count)?;
        }
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::element::DType;
    use crate::tensor::Tensor;

    #[test]
    fn windows_cover_every_unit_once_and_fit() {
        let profile = Profile {
            max_binding: 4096,
            ..Profile::usual()
        };
        let src = Requirement::new(Tensor::Src, DType::F32, 10_007);
        let start = |u: u64| (u * 331).min(10_007);
        let windows = windows(&profile, &src, 0..31, 1, start).unwrap();
        assert!(windows.len() > 10);
        let mut next = 0;
        for window in &windows {
            assert_eq!(window.units.start, next);
            next = window.units.end;
            assert!(window.elements.start <= start(window.units.start));
            assert!(window.elements.end >= start(window.units.end));
            assert_eq!(window.elements.start % 64, 0);
            assert!(window.elements.end % 8 == 0 || window.elements.end == 10_008);
            let bytes = window.bind(&src).bytes;
            assert!(bytes.end - bytes.start <= 4096);
        }
        assert_eq!(next, 31);
        let error =
            super::windows(&profile, &src, 0..2, 1, |u| (u * 5000).min(10_007)).unwrap_err();
        assert!(matches!(
            Error::from(error),
            Error::Limit {
                available: 4096,
                ..
            }
        ));
    }
}
