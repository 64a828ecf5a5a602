//! Every batch-norm vector, including the three real layers.

use crate::common::data::assert_close;
use crate::common::vectors::of_operator;
use crate::common::{every_subject, subjects};
use wgpu_norm::{Channels, Norm};

#[test]
fn vectors() {
    let (mut of_channels, mut broadcast) = (0, 0);
    for vector in of_operator("batch_norm_backward") {
        let (problem, want) = vector.problem();
        let subjects = match &problem.operation.norm {
            Norm::Batch(Channels::Axis(_)) => {
                of_channels += 1;
                every_subject()
            }
            _ => {
                broadcast += 1;
                subjects()
            }
        };
        let types = problem.operation.types;
        for subject in subjects {
            if !subject.gpu.supports(types.data) {
                println!("{}: {} is not supported", subject.name, types.data);
                continue;
            }
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&problem.run(subject).unwrap(), &want, &what);
        }
    }
    assert!(of_channels >= 16, "only {of_channels} with [C] parameters");
    assert!(broadcast >= 5, "only {broadcast} with broadcast ones");
}
