//! Scale and B of the norms over rows, each broadcast to X.

use crate::geometry::axis_from_start;
use crate::operators::broadcast::{aligned, axes_along, common_sizes};
use crate::operators::*;

/// A tensor that is broadcast to X.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a, T> {
    /// Its shape: the sizes along X's last axes, each either 1 or X's. Along axes of size 1, and along the axes of X
    /// that it lacks, the tensor is broadcast.
    pub shape: &'a [usize],
    /// Its elements.
    pub tensor: &'a [T],
}

/// The sizes of Scale and B along every axis of X, and those that both broadcast to.
pub(super) struct Sizes {
    pub scale: Vec<usize>,
    pub b: Option<Vec<usize>>,
    pub common: Vec<usize>,
}

impl Sizes {
    pub fn new(
        shape: &[usize],
        scale_shape: &[usize],
        b_shape: Option<&[usize]>,
    ) -> Result<Self, Error> {
        let own = |tensor, own| aligned(tensor, shape.len(), own);
        let scale = own(Tensor::Gamma, scale_shape)?;
        let b = b_shape.map(|b| own(Tensor::Beta, b)).transpose()?;
        let both = std::iter::once((Tensor::Gamma, &*scale));
        let both = both.chain(b.as_deref().map(|b| (Tensor::Beta, b)));
        let common = common_sizes(shape, both)?;
        Ok(Self { scale, b, common })
    }
}

/// The norm with statistics over the axes from `begin_axis` on and with parameters of these sizes.
pub(super) fn norm_of(shape: &[usize], begin_axis: i64, sizes: &[usize], centered: bool) -> Norm {
    let of_rows = match centered {
        true => Norm::Layer { begin_axis },
        false => Norm::Rms { begin_axis },
    };
    let Some(begin) = axis_from_start(shape.len(), begin_axis) else {
        return of_rows; // Its check names the axis.
    };
    let mut axes = shape.iter().zip(sizes).enumerate();
    // Along an axis of size 1 parameters vary as well as not.
    match axes.all(|(axis, (&size, &own))| size == 1 || (own != 1) == (axis >= begin)) {
        true => of_rows,
        false => Norm::Axes {
            axes: (begin..shape.len()).map(|axis| axis as i64).collect(),
            param_axes: axes_along(sizes),
            centered,
        },
    }
}
