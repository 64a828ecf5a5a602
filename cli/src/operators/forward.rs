//! What the forward passes have in common.

use super::tensors::Named;
use crate::check::Expected;
use wgpu_norm::reference::Forward;

/// The results of src's shape with their names.
pub fn data<T>(dst: Vec<T>, sum: Option<Vec<T>>) -> Named<T> {
    let sum = sum.map(|values| ("sum", values));
    std::iter::once(("dst", dst)).chain(sum).collect()
}

/// The reference's results with their names.
pub fn expected(want: Forward) -> Vec<Expected> {
    vec![
        Expected::new("dst", want.dst, want.dst_scale),
        Expected::new("sum", want.sum, want.sum_scale),
        Expected::new("mean", want.mean, want.mean_scale),
        Expected::new("variance", want.variance, want.variance_scale),
        Expected::new("mean_square", want.mean_square, want.mean_square_scale),
    ]
}
