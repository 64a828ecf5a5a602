//! Parameters that are each broadcast along axes of their own.

use super::given::{Given, Named};
use crate::error::Error;
use crate::geometry::{self, axis_from_start, check_rank};
use crate::memory;
use crate::operation::Norm;
use crate::tensor::Tensor;
use std::borrow::Cow;

/// A parameter's sizes along every axis of src. A shorter shape lacks the first axes, where its size is 1.
fn aligned(rank: usize, name: &'static str, shape: &[usize]) -> Result<Vec<usize>, Error> {
    check_rank(name, 0..=rank, shape.len())?;
    let lacking = std::iter::repeat_n(1, rank - shape.len());
    Ok(lacking.chain(shape.iter().copied()).collect())
}

/// For each axis, src's size if any of these parameters has it, else 1. All parameters and statistics are then expanded
/// to these sizes.
pub(super) fn common_sizes(given: &Given<'_>, parameters: &[Tensor]) -> Result<Vec<usize>, Error> {
    let src = given.shape;
    check_rank("src", 1..=geometry::MAX_RANK, src.len())?;
    geometry::elements("src", src)?;
    let mut common = vec![1; src.len()];
    for tensor in parameters.iter().filter(|tensor| given.has(**tensor)) {
        let Named { name, input } = given.require(*tensor)?;
        let sizes = aligned(src.len(), name, input.shape)?;
        for (axis, ((common, &size), own)) in common.iter_mut().zip(src).zip(sizes).enumerate() {
            if own != 1 && own != size {
                let expected = format!("size 1 or {size} along axis {axis}");
                return Err(Error::argument(name, expected, own));
            }
            if own != 1 {
                *common = own;
            }
        }
    }
    Ok(given.sizes.get_or_init(|| common).clone())
}

/// The axes that parameters of these sizes vary along.
pub(super) fn axes_along(sizes: &[usize]) -> Vec<i64> {
    let along = (0..).zip(sizes).filter(|(_, size)| **size != 1);
    along.map(|(axis, _)| axis).collect()
}

/// The norm with statistics over the axes from `begin_norm_axis` on and with parameters of these sizes.
pub(super) fn rows_norm(
    shape: &[usize],
    begin_norm_axis: i64,
    sizes: &[usize],
    centered: bool,
) -> Norm {
    let rows = if centered {
        Norm::layer(begin_norm_axis)
    } else {
        Norm::rms(begin_norm_axis)
    };
    let Some(begin) = axis_from_start(shape.len(), begin_norm_axis) else {
        return rows; // Its check names the axis.
    };
    let mut axes = shape.iter().zip(sizes).enumerate();
    // Along an axis of size 1 parameters vary as well as not.
    if axes.all(|(axis, (&size, &own))| size == 1 || (own != 1) == (axis >= begin)) {
        return rows;
    }
    let axes: Vec<i64> = (begin..shape.len()).map(|axis| axis as i64).collect();
    Norm::axes(&axes, &axes_along(sizes)).centered(centered)
}

/// A parameter's elements, expanded to sizes that its own broadcast to. These are at most src's, whose number of
/// elements was checked.
pub(super) fn expand<'a>(named: Named<'a>, common: &[usize]) -> Result<Cow<'a, [u8]>, Error> {
    let Named { name, input } = named;
    let bytes = input.bytes.unwrap_or_default();
    let sizes = aligned(common.len(), name, input.shape)?;
    for (axis, (&common, &own)) in common.iter().zip(&sizes).enumerate() {
        if own != 1 && own != common {
            let expected = format!("size {common} along axis {axis}");
            return Err(Error::argument(name, expected, own));
        }
    }
    if sizes == common {
        return Ok(Cow::Borrowed(bytes));
    }
    let size = input.format.size() as usize;
    let elements = geometry::elements(name, common)? as usize;
    let mut expanded = memory::room(name, elements.saturating_mul(size))?;
    for position in 0..elements {
        let (mut rest, mut index, mut stride) = (position, 0, 1);
        for (&size, &own) in common.iter().zip(&sizes).rev() {
            if own != 1 {
                index += rest % size * stride;
                stride *= own;
            }
            rest /= size;
        }
        // The index is in bounds, since the tensor is as long as its sizes say.
        expanded.extend(bytes.chunks_exact(size).nth(index).into_iter().flatten());
    }
    Ok(Cow::Owned(expanded))
}
