//! Random operations over ranks that are threads, with few samples or none on some, compared with the reference.

use crate::common::data::{Problem, assert_close};
use crate::common::ranks;
use crate::draw::Draw;
use crate::{Report, Share};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wgpu_norm::{Channels, Norm, Operation};
use wgpu_norm_verify::{Case, Random};

pub fn run(share: &Share<'_>) -> Report {
    let subject = share.subject();
    let mut draw = Draw(Random::new(share.seed ^ 0x5a5a));
    let mut report = Report::default();
    for turn in 0.. {
        if !share.is_time() {
            break;
        }
        if turn % 300 == 0 {
            subject.gpu.forget_pipelines();
        }
        let id = draw.case(1 << 12);
        let Ok(case) = id.parse::<Case>() else {
            continue;
        };
        let operation = case.operation();
        let samples = operation.shape[0];
        let mut parts = vec![];
        let mut rest = samples;
        for _ in 0..draw.below(4) {
            let own = draw.below(rest as u64 + 1) as usize;
            parts.push(own);
            rest -= own;
        }
        parts.push(rest);
        let is_planned = operation.plan(subject.gpu.profile()).is_ok() && case.inputs().is_ok();
        let can = is_planned
            && operation.tensors().is_ok_and(|tensors| {
                // Parts are taken of whole samples, and a mask has words.
                tensors
                    .iter()
                    .all(|used| used.tensor != wgpu_norm::Tensor::Mask)
            });
        if !can || !takes_ranks(operation, &parts) {
            report.add(Ok(false));
            continue;
        }
        let data = draw.below(1 << 20);
        let problem = Problem::random(operation, data);
        let what = format!("{case}, data {data}, on ranks of {parts:?} samples");
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let got = ranks::run(&problem, &subject, &parts, &what);
            assert_close(&got, &problem.reference(), &what);
        }));
        report.add(checked.map(|()| true).map_err(|_| what));
    }
    report
}

/// Whether ranks may share it: each has such an operation, and statistics are of a channel or within a sample.
pub fn takes_ranks(operation: &Operation, parts: &[usize]) -> bool {
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
        own.tensors().is_ok()
    });
    within && is_planned
}
