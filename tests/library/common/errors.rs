//! Shared code of the error tests.

use super::Subject;
use super::buffers::{Buffers, Room};
use super::data::{Problem, batch_norm_gradient, find};
use wgpu_norm::{DataFormat, Error, Tensor};

/// A small problem that works.
pub fn problem() -> Problem {
    Problem::random(
        &batch_norm_gradient::<f32, f32>(&[2, 3, 5], DataFormat::Ncx),
        1,
    )
}

/// Asserts that the context accepts a valid call after a failed one.
pub fn still_works(subject: &Subject) {
    let problem = problem();
    let results = problem.run(subject).unwrap();
    assert_eq!(find(&results, Tensor::DiffSrc).numbers().len(), 30);
    assert_eq!(find(&results, Tensor::DiffGamma).numbers().len(), 3);
    let plan = problem.operation.plan(subject.gpu.profile()).unwrap();
    let buffers = Buffers::new(subject, &problem, &plan, Room::Exact);
    let _ = plan.bind(&subject.gpu, &buffers.ranges()).unwrap();
}

/// Asserts that the error's message has all these parts.
#[track_caller]
pub fn says(error: &Error, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "'{message}' lacks '{part}'");
    }
}
