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

fn slope(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::None => 1.0,
        // NaN passes.
        Activation::Relu => f64::from(u8::from(y.is_nan() || y > 0.0)),
        Activation::Silu => {
            let s = 1.0 / (1.0 + (-y).exp());
            s * (1.0 + y * (1.0 - s))
        }
    }
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
        Activation::Silu => diff * slope(activation, y),
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
    let scales = all.map(|((&y, &scale), &diff)| {
        let curvature = match activation {
            Activation::Silu => 0.5,
            Activation::None | Activation::Relu => 0.0,
        };
        diff.abs() * (slope(activation, y).abs() + curvature * scale)
    });
    memory::collect(OF_ELEMENTS, scales)
}
