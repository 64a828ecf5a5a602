//! Random operations over ranks that are threads, with few samples or none on some, compared with the reference.

use crate::common::data::assert_close;
use crate::common::ranks;
use crate::{Fault, Report, Share};
use wgpu_norm::{Channels, DTypes, Norm, Operation, Pass, Profile, Tensor};

pub fn run(share: &Share<'_>) -> Report {
    share.each_problem(1 << 12, |draw, drawn| {
        let operation = &drawn.problem.operation;
        let mut parts = vec![];
        let mut rest = operation.shape[0];
        for _ in 0..draw.below(4) {
            let own = draw.below(rest as u64 + 1) as usize;
            parts.push(own);
            rest -= own;
        }
        parts.push(rest);
        // Parts are taken of whole samples, and a mask has words.
        let is_masked = operation
            .tensors()?
            .iter()
            .any(|used| used.tensor == Tensor::Mask);
        if is_masked || !takes_ranks(operation, &parts, drawn.subject.gpu.profile()) {
            return Err(Fault::Refused);
        }
        let what = format!("on ranks of {parts:?} samples");
        let got = ranks::run(&drawn.problem, &drawn.subject, &parts, &what);
        assert_close(&got, &drawn.problem.reference(), &what);
        Ok(())
    })
}

/// Whether ranks may share it: each has a plan for its part, and statistics are of a channel or within a sample.
pub fn takes_ranks(operation: &Operation, parts: &[usize], profile: &Profile) -> bool {
    let rank = operation.shape.len() as i64;
    let within = match &operation.norm {
        Norm::Batch(channels) => matches!(channels, Channels::Axis(_)),
        Norm::Axes { axes, .. } => axes.iter().all(|axis| axis.rem_euclid(rank) > 0),
        norm => norm
            .begin_norm_axis()
            .is_none_or(|axis| axis.rem_euclid(rank) > 0),
    };
    let is_planned = parts.iter().all(|samples| {
        let mut own = operation.clone();
        own.shape[0] = *samples;
        // A small binding may have room for the whole alone, not for halves.
        let is_in_halves = matches!(own.norm, Norm::Batch(_)) && own.pass != Pass::Inference;
        // Nor for gradients of parameters as wide as sums, in which other norms exchange them.
        if !is_in_halves && matches!(own.pass, Pass::Backward(_)) {
            let data = own.types.data;
            own.types = DTypes::from((data, data.accumulator()));
        }
        let plan = own.plan(profile);
        plan.is_ok_and(|plan| !is_in_halves || plan.sums().is_some())
    });
    within && is_planned
}
