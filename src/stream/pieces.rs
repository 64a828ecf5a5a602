//! Divides a plan's dispatches into pieces: the parts of tensors that are on the device at a time. Pure.

use crate::plan::{Dispatch, Phases, Plan};
use crate::tensor::Tensor;
use std::ops::Range;

/// Consecutive dispatches that bind the same windows of the streamed tensors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Piece {
    /// Indices into the plan's dispatches.
    pub dispatches: Vec<usize>,
    /// The bytes of each tensor that are bound.
    pub windows: Vec<(Tensor, Range<u64>)>,
    /// Those of a result that it writes, if it leaves the others in the window alone.
    owned: Vec<(Tensor, Range<u64>)>,
}

impl Piece {
    /// The bytes of a tensor that are bound.
    pub fn window(&self, tensor: Tensor) -> Option<&Range<u64>> {
        let mut windows = self.windows.iter();
        windows.find(|(t, _)| *t == tensor).map(|(_, bytes)| bytes)
    }

    /// The bytes of a result that it writes.
    pub fn written(&self, tensor: Tensor) -> Option<&Range<u64>> {
        let mut owned = self.owned.iter();
        let own = owned.find(|(t, _)| *t == tensor).map(|(_, bytes)| bytes);
        own.or_else(|| self.window(tensor))
    }

    fn owns(&self, tensor: Tensor) -> bool {
        self.owned.iter().any(|(owned, _)| *owned == tensor)
    }

    /// Adds the windows of a dispatch, unless a tensor has another window here. Returns whether it did.
    fn join(&mut self, windows: &[(Tensor, Range<u64>)]) -> bool {
        let same = |(tensor, bytes): &(Tensor, Range<u64>)| {
            self.window(*tensor).is_none_or(|known| known == bytes)
        };
        if !windows.iter().all(same) {
            return false;
        }
        for (tensor, bytes) in windows {
            if self.window(*tensor).is_none() {
                self.windows.push((*tensor, bytes.clone()));
            }
        }
        true
    }
}

/// Whether a tensor is streamed. Tensors of src's shape are; the others stay on the device.
pub(super) fn is_streamed(tensor: Tensor) -> bool {
    tensor.is_data() || tensor == Tensor::Mask
}

/// The pieces of the whole operation, in order.
pub(super) fn pieces(plan: &Plan) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, (phases, dispatch)) in plan.dispatches.iter().enumerate() {
        if !phases.meets(Phases::WHOLE) {
            continue;
        }
        let windows = windows_of(dispatch);
        if !pieces.last_mut().is_some_and(|piece| piece.join(&windows)) {
            pieces.push(Piece {
                dispatches: vec![],
                windows,
                owned: vec![],
            });
        }
        if let Some(piece) = pieces.last_mut() {
            piece.dispatches.push(index);
            let written = dispatch.bindings.iter();
            let written =
                written.filter(|binding| dispatch.body.outputs().contains(&binding.tensor));
            let owned = written.filter_map(|one| Some((one.tensor, one.owned.clone()?)));
            piece.owned.extend(owned);
        }
    }
    pieces
}

fn windows_of(dispatch: &Dispatch) -> Vec<(Tensor, Range<u64>)> {
    let bindings = dispatch.bindings.iter();
    let streamed = bindings.filter(|binding| is_streamed(binding.tensor));
    streamed
        .map(|binding| (binding.tensor, binding.bytes.clone()))
        .collect()
}

/// Bytes at the start of a piece's window of a result that the previous window has too, and may have written; none if
/// the piece has no window.
pub(super) fn overlap(pieces: &[Piece], index: usize, tensor: Tensor) -> Option<u64> {
    let piece = pieces.get(index)?;
    let window = piece.window(tensor)?;
    if piece.owns(tensor) {
        return Some(0);
    }
    let before = pieces.get(..index)?.iter().rev();
    let before = before.filter_map(|piece| piece.window(tensor)).next();
    Some(before.map_or(0, |before| before.end.saturating_sub(window.start)))
}

/// The first result whose windows are not written in order; no plan should have one.
pub(super) fn out_of_order(plan: &Plan, pieces: &[Piece]) -> Option<Tensor> {
    let written = plan.tensors.iter().map(|r| r.tensor);
    let mut written = written.filter(|&tensor| is_streamed(tensor) && plan.writes(tensor));
    written.find(|&tensor| {
        let repeating = pieces.iter().filter(|piece| !piece.owns(tensor));
        let windows: Vec<_> = repeating.filter_map(|p| p.window(tensor)).collect();
        let ordered = |pair: &[&Range<u64>]| match pair {
            [one, next] => one.start <= next.start && one.end <= next.end,
            _ => true,
        };
        !windows.windows(2).all(ordered)
    })
}
