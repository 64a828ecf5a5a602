//! Parameters that are each broadcast along axes of their own.

use crate::operators::*;
use crate::{geometry, geometry::check_rank};

/// A parameter's sizes along every axis of src of this rank. A shorter shape lacks the first axes, where its size is 1.
pub(super) fn aligned(tensor: Tensor, rank: usize, shape: &[usize]) -> Result<Vec<usize>, Error> {
    check_rank("src", 1..=geometry::MAX_RANK, rank)?;
    check_rank(tensor.name(), 0..=rank, shape.len())?;
    let lacking = std::iter::repeat_n(1, rank - shape.len());
    Ok(lacking.chain(shape.iter().copied()).collect())
}

/// For each axis, src's size if any parameter has it, else 1.
pub(super) fn common_sizes<'a>(
    src: &[usize],
    parameters: impl IntoIterator<Item = (Tensor, &'a [usize])>,
) -> Result<Vec<usize>, Error> {
    let rank = src.len();
    check_rank("src", 1..=geometry::MAX_RANK, rank)?;
    geometry::elements("src", src)?;
    let mut common = vec![1; rank];
    for (tensor, sizes) in parameters {
        let argument = tensor.name();
        check_rank(argument, rank..=rank, sizes.len())?;
        let axes = common.iter_mut().zip(src).zip(sizes);
        for (axis, ((common, &size), &own)) in axes.enumerate() {
            if own != 1 && own != size {
                let expected = format!("size 1 or {size} along axis {axis}");
                return Err(Error::argument(argument, expected, own));
            }
            if own != 1 {
                *common = own;
            }
        }
    }
    Ok(common)
}

/// The axes that parameters of these sizes vary along.
pub(super) fn axes_along(sizes: &[usize]) -> Vec<i64> {
    let along = (0..).zip(sizes).filter(|(_, size)| **size != 1);
    along.map(|(axis, _)| axis).collect()
}

/// Expands a parameter to sizes that its own broadcast to. These are at most src's, whose number of elements was
/// checked.
pub(super) fn expand<'a, T: Element>(
    tensor: Tensor,
    sizes: &[usize],
    values: &'a [T],
    common: &[usize],
) -> Result<Cow<'a, [T]>, Error> {
    let name = tensor.name();
    check_length(name, geometry::elements(name, sizes)?, values.len())?;
    if sizes == common {
        return Ok(Cow::Borrowed(values));
    }
    let elements = geometry::elements(name, common)?;
    let elements = usize::try_from(elements).unwrap_or(usize::MAX);
    let value = |mut rest: usize| {
        let (mut index, mut stride) = (0, 1);
        for (&size, &own) in common.iter().zip(sizes).rev() {
            if own != 1 {
                index += rest % size * stride;
                stride *= own;
            }
            rest /= size;
        }
        // The index is in bounds, since the tensor is as long as its sizes say.
        values.get(index).copied().unwrap_or_else(T::zeroed)
    };
    memory::collect(name, (0..elements).map(value)).map(Cow::Owned)
}
