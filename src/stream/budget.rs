//! The memory that a stream uses, and the size of its windows. Pure.

use super::pieces::{Piece, is_streamed, overlap, pieces};
use crate::error::Error;
use crate::plan::{Plan, Requirement, Unfit};
use crate::tensor::Tensor;

/// Bytes that are read or written at once.
pub(super) const CHUNK: u64 = 1 << 20;

/// A plan and its pieces.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub plan: Plan,
    pub pieces: Vec<Piece>,
    /// Bytes that it uses: host and device together.
    pub memory: u64,
    /// Bytes of the largest window of a tensor of src's type.
    window: u64,
}

impl Planned {
    fn new(plan: Plan) -> Self {
        let pieces = pieces(&plan);
        let data = plan.tensors.iter().filter(|r| r.tensor.is_data());
        let window = data.map(|r| largest_window(&pieces, r.tensor)).max();
        Self {
            memory: memory(&plan, &pieces),
            window: window.unwrap_or(0),
            plan,
            pieces,
        }
    }

    /// The same operation in shorter windows, if there are any.
    fn in_shorter_windows(&self, plan: impl Fn(u64) -> Result<Plan, Unfit>) -> Option<Self> {
        let mut most = self.window / 10 * 7;
        loop {
            match plan(most) {
                Ok(plan) => {
                    let shorter = Self::new(plan);
                    return (shorter.window < self.window).then_some(shorter);
                }
                // The tensors of some kernel cannot be cut so short.
                Err(Unfit::Window { needed, .. }) if needed > most && needed < self.window => {
                    most = needed
                }
                // Shorter windows fail too, or there would be too many dispatches.
                Err(_) => return None,
            }
        }
    }
}

/// Makes the plan with about the largest windows that fit in a budget. `plan` makes a plan whose windows have at most
/// the given number of bytes.
///
/// The windows that are tried first do not depend on the budget, so every budget from the one that an error names on is
/// sufficient. The shortest windows need not use the least memory: the sums of the pieces use some too.
pub(super) fn within(
    budget: u64,
    plan: impl Fn(u64) -> Result<Plan, Unfit>,
) -> Result<Planned, Error> {
    let mut planned = Planned::new(plan(u64::MAX)?);
    let mut least = planned.memory;
    let mut too_large = planned.window;
    while planned.memory > budget {
        too_large = planned.window;
        planned = planned.in_shorter_windows(&plan).ok_or(Error::Budget {
            expected: least,
            got: budget,
        })?;
        least = least.min(planned.memory);
    }
    for _ in 0..4 {
        let between = planned.window.midpoint(too_large);
        match plan(between).map(Planned::new) {
            Ok(longer) if longer.memory <= budget && longer.window > planned.window => {
                planned = longer;
            }
            _ => too_large = between,
        }
    }
    Ok(planned)
}

/// Bytes of buffers, and of chunks on the host.
fn memory(plan: &Plan, pieces: &[Piece]) -> u64 {
    let tensors = plan.tensors.iter().filter(|r| r.tensor != Tensor::Sums);
    let of_tensor = |requirement: &Requirement| {
        let tensor = requirement.tensor;
        if !is_streamed(tensor) {
            return requirement.padded_bytes();
        }
        let on_device = u64::from(!is_over_diff_dst(plan, tensor));
        // Inputs: two pieces on their way to the device, and one that wgpu has not freed yet. Results: two pieces on
        // their way back, and the bytes that the next piece repeats.
        let (on_the_way, carried) = if plan.writes(tensor) {
            (2, largest_overlap(pieces, tensor))
        } else {
            (3, 0)
        };
        largest_window(pieces, tensor)
            .saturating_mul(on_device + on_the_way)
            .saturating_add(carried)
    };
    let kept = plan.workspace_bytes.saturating_add(4 * CHUNK);
    tensors
        .map(of_tensor)
        .fold(kept, |all, bytes| all.saturating_add(bytes))
}

/// Bytes of the largest window of a tensor.
pub(super) fn largest_window(pieces: &[Piece], tensor: Tensor) -> u64 {
    let windows = pieces.iter().filter_map(|piece| piece.window(tensor));
    let bytes = windows.map(|bytes| bytes.end.saturating_sub(bytes.start));
    bytes.max().unwrap_or(0)
}

/// The most bytes of a tensor that a piece repeats from the one before it.
pub(super) fn largest_overlap(pieces: &[Piece], tensor: Tensor) -> u64 {
    let overlaps = (1..pieces.len()).map(|index| overlap(pieces, index, tensor).unwrap_or(0));
    overlaps.max().unwrap_or(0)
}

/// Whether a tensor shares diff_dst's memory on the device.
pub(super) fn is_over_diff_dst(plan: &Plan, tensor: Tensor) -> bool {
    tensor == Tensor::DiffSrc && plan.requirement(Tensor::DiffDst).is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::element::DType;
    use crate::operation::{Backward, Epilogue, Forward, Norm, Operation, Residual};
    use crate::options::{Activation, DataFormat};
    use crate::profile::Profile;
    use crate::tuning::Tuning;

    /// The budget that an error names. It and all larger ones are sufficient, and 1 % less is not.
    fn named(operation: &Operation) -> u64 {
        let plan = |max_window| {
            operation.planned_or_unfit(&Profile {
                max_window,
                long_words: true,
                subgroup_size: 8,
                tuning: Tuning::SOFTWARE,
                ..Profile::usual()
            })
        };
        let started = std::time::Instant::now();
        let Err(Error::Budget { expected, .. }) = within(0, plan) else {
            panic!("a stream without memory");
        };
        println!("{expected} bytes, in {:?}", started.elapsed());
        let refused = within(expected / 100 * 99, plan).unwrap_err();
        assert!(matches!(refused, Error::Budget { expected: again, .. } if again == expected));
        for more in [0, 1, 1_000_000, 30_000_000, 1 << 30] {
            let planned = within(expected + more, plan).unwrap();
            assert!(planned.memory <= expected + more);
            println!(
                "{more} more: {} bytes in {} pieces",
                planned.memory,
                planned.pieces.len()
            );
        }
        expected
    }

    #[test]
    fn what_an_error_names_is_enough_and_not_much_more() {
        // One row: as a whole it uses less than the sums of its pieces do.
        let rms = Norm::Rms {
            begin_norm_axis: -1,
        };
        let shape = [1, 1_813_050];
        let row = named(&Operation::new(
            rms,
            Backward::default(),
            &shape,
            DType::F32,
        ));
        assert!(row <= 91_692_837, "{row}");
        let group = Norm::Group {
            groups: 32,
            format: DataFormat::Ncx,
        };
        let shape = [2048, 1024, 1024];
        named(&Operation::new(
            group,
            Backward::default(),
            &shape,
            DType::F32,
        ));
        let layer = Norm::Layer {
            begin_norm_axis: -1,
        };
        let shape = [1 << 20, 1024];
        let forward = Operation::new(layer, Forward::default(), &shape, DType::F32);
        named(&forward.with_epilogue(Epilogue::new(Residual::Before, Activation::None)));
    }
}
