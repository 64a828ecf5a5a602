//! What follows a layer.

use super::{Forward, OF_ELEMENTS, check_length};
use crate::{Activation, Error, memory};

impl Forward {
    /// The same layer with what follows it: dst = activation(dst + residual), where a residual is optional. `dst_scale`
    /// becomes the size of the terms of that.
    ///
    /// # Errors
    /// [`Error::Length`] if the residual is not as long as dst; [`Error::HostMemory`].
    pub fn followed_by(
        self,
        activation: Activation,
        residual: Option<&[f64]>,
    ) -> Result<Self, Error> {
        let elements = self.dst.len();
        check_length(
            "residual",
            elements,
            residual.map_or(elements, <[f64]>::len),
        )?;
        let all = self.dst.iter().zip(&self.dst_scale).enumerate();
        let followed = all.map(|(i, (dst, scale))| {
            let residual = residual.map_or(0.0, |residual| residual[i]);
            let y = dst + residual;
            let dst = value(activation, y);
            // The steepest slope of silu is 1.1.
            let steepest = match activation {
                Activation::Silu => 1.1,
                Activation::None | Activation::Relu => 1.0,
            };
            (dst, steepest * (scale + residual.abs()))
        });
        let both = memory::collect(OF_ELEMENTS, followed)?;
        let dst = memory::collect(OF_ELEMENTS, both.iter().map(|both| both.0))?;
        let dst_scale = memory::collect(OF_ELEMENTS, both.iter().map(|both| both.1))?;
        Ok(Self {
            dst,
            dst_scale,
            ..self
        })
    }
}

fn value(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::None => y,
        Activation::Relu if y <= 0.0 => 0.0,
        Activation::Relu => y,
        Activation::Silu => y / (1.0 + (-y).exp()),
    }
}

fn silu_slope(y: f64) -> f64 {
    let s = 1.0 / (1.0 + (-y).exp());
    s * (1.0 + y * (1.0 - s))
}

/// The gradient with respect to what an activation is applied to, of the one with respect to its result: `y` is what it is
/// applied to. Of relu, what does not pass becomes 0.
///
/// ```
/// use wgpu_norm::{Activation, reference::through_activation};
///
/// let passed = through_activation(Activation::Relu, &[2.0, 0.0, -1.0, f64::NAN], &[1.0, 2.0, 3.0, 4.0])?;
/// assert_eq!(passed, [1.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
///
/// # Errors
/// [`Error::Length`] if there are not as many of both; [`Error::HostMemory`].
pub fn through_activation(
    activation: Activation,
    y: &[f64],
    diff: &[f64],
) -> Result<Vec<f64>, Error> {
    check_length("diff_dst", y.len(), diff.len())?;
    let passed = y.iter().zip(diff).map(|(&y, &diff)| match activation {
        Activation::Relu if y <= 0.0 => 0.0,
        Activation::Relu | Activation::None => diff,
        Activation::Silu => diff * silu_slope(y),
    });
    memory::collect(OF_ELEMENTS, passed)
}

/// The size of the terms of what [`through_activation`] gives, where `y` is found again from terms of the size `y_scale`.
///
/// # Errors
/// As [`through_activation`].
pub fn through_activation_scale(
    activation: Activation,
    y: &[f64],
    y_scale: &[f64],
    diff: &[f64],
) -> Result<Vec<f64>, Error> {
    check_length("diff_dst", y.len(), diff.len())?;
    let all = y.iter().zip(y_scale).zip(diff);
    let scales = all.map(|((&y, &scale), &diff)| match activation {
        Activation::Relu if y <= 0.0 => 0.0,
        Activation::Relu | Activation::None => diff.abs(),
        // Its curvature is at most a half.
        Activation::Silu => diff.abs() * (silu_slope(y).abs() + 0.5 * scale),
    });
    memory::collect(OF_ELEMENTS, scales)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Relu passes diff or nothing, however large its input's terms and diff are.
    #[test]
    fn relu_of_infinite_terms_keeps_the_size_of_what_passes() {
        let y = [f64::INFINITY, f64::NEG_INFINITY, -1.0];
        let diff = [-2.0, 3.0, f64::INFINITY];
        let relu = Activation::Relu;
        let scale = through_activation_scale(relu, &y, &[f64::INFINITY; 3], &diff).unwrap();
        assert_eq!(scale, [2.0, 0.0, 0.0]);
    }
}
