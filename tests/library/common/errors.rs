//! What the tests of errors share.

use super::Subject;
use super::buffers::{Buffers, Room, plan};
use super::data::{Case, options_in};
use wgpu_norm::{DataFormat, Error};

/// A small case that works.
pub fn case() -> Case<f32, f32> {
    Case::random(&[2, 3, 5], options_in(DataFormat::Ncx), 1)
}

/// The context takes a right call after a wrong one.
pub fn still_works(subject: &Subject) {
    let case = case();
    let grads = case.run(subject).unwrap();
    assert_eq!(grads.diff_src.len(), 30);
    assert_eq!(grads.diff_gamma.unwrap().len(), 3);
    let buffers = Buffers::new(subject, &case, Room::Exact);
    let _ = plan(subject, &case)
        .bind(&subject.gpu, &buffers.ranges())
        .unwrap();
}

/// The error's message has all these parts.
#[track_caller]
pub fn says(error: &Error, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "'{message}' lacks '{part}'");
    }
}
