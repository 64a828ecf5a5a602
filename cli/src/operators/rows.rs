//! What the operators over rows, which normalize all axes from one on, have in common.

use super::tensors::Arguments;
use crate::failure::Failure;
use crate::input::Tensor;
use wgpu_norm::Error;

/// A failure if a statistic or parameter has another shape than src's axes ask for.
pub fn check_shapes(arguments: &Arguments, begin_norm_axis: i64) -> Result<(), Failure> {
    let src = arguments.src.shape();
    let axis = first_normalized_axis(src.len(), begin_norm_axis);
    // Where src has no such axis, the library says so.
    if let Some((rows, columns)) = axis.and_then(|axis| src.split_at_checked(axis)) {
        let kept = [rows, &vec![1; columns.len()]].concat();
        for statistic in &arguments.statistics {
            if statistic.shape() != kept {
                expect_sizes(statistic, rows, " (src's axes before begin_norm_axis)")?;
            }
        }
        for param in &arguments.params {
            expect_sizes(param, columns, " (src's axes from begin_norm_axis on)")?;
        }
    }
    Ok(())
}

/// An error if rows are not of single samples.
pub fn check_samples(src: &[usize], begin_norm_axis: i64) -> Result<(), Error> {
    match first_normalized_axis(src.len(), begin_norm_axis) {
        Some(0) => Err(Error::Argument {
            argument: "begin_norm_axis",
            expected: "an axis behind the first, along which ranks share src".to_owned(),
            got: begin_norm_axis.to_string(),
        }),
        _ => Ok(()),
    }
}

/// The shape of statistics beside src: its axes before begin_norm_axis.
pub fn statistics_shape(src: &[usize], begin_norm_axis: i64) -> Vec<usize> {
    let axis = first_normalized_axis(src.len(), begin_norm_axis);
    let rows = axis.and_then(|axis| src.get(..axis));
    rows.unwrap_or_default().to_vec()
}

/// begin_norm_axis as the reference takes it. It refuses `rank`, as the library has refused what has no such axis.
pub fn reference_axis(rank: usize, begin_norm_axis: i64) -> usize {
    first_normalized_axis(rank, begin_norm_axis).unwrap_or(rank)
}

/// begin_norm_axis counted from the front; none if there is no such axis.
fn first_normalized_axis(rank: usize, begin_norm_axis: i64) -> Option<usize> {
    let axis = match usize::try_from(begin_norm_axis) {
        Ok(axis) => axis,
        Err(_) => rank.checked_sub(usize::try_from(begin_norm_axis.unsigned_abs()).ok()?)?,
    };
    (axis < rank).then_some(axis)
}

/// A failure if the tensor has neither these sizes nor, as one axis, their product.
fn expect_sizes(tensor: &Tensor, sizes: &[usize], why: &'static str) -> Result<(), Failure> {
    let product = match sizes.contains(&0) {
        true => Some(0), // whatever the other sizes are
        false => sizes.iter().try_fold(1_usize, |p, &s| p.checked_mul(s)),
    };
    let flat = product.map(|product| [product]);
    let flat = flat.iter().map(<[usize; 1]>::as_slice);
    let mut allowed = vec![sizes];
    allowed.extend(flat.filter(|&flat| flat != sizes));
    tensor.expect_shape(&allowed, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_count_from_either_end() {
        let axes = [0, 2, -1, -3].map(|axis| first_normalized_axis(3, axis));
        assert_eq!(axes, [Some(0), Some(2), Some(2), Some(0)]);
        for axis in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(first_normalized_axis(3, axis), None, "{axis}");
        }
        assert_eq!(first_normalized_axis(0, -1), None);
        assert_eq!(first_normalized_axis(0, 0), None);
    }
}
