//! Activations, and their gradients.

use wgpu_norm::Activation;

/// NaN, which nothing agrees with, of an activation that has no line here.
pub(super) fn value(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::None => y,
        Activation::Relu if y <= 0.0 => 0.0,
        Activation::Relu => y,
        Activation::Silu => y / (1.0 + (-y).exp()),
        _ => f64::NAN,
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
        _ => f64::NAN,
    }
}

/// The steepest that an activation can be.
pub(super) fn steepest(activation: Activation) -> f64 {
    match activation {
        Activation::Silu => 1.1,
        _ => 1.0,
    }
}

/// The gradient with respect to `y`, which the activation is applied to, of the one with respect to its result, and the size
/// of its terms where y's are of size `scale`. What relu does not let pass is 0.
pub(super) fn backward(activation: Activation, (y, scale): (f64, f64), diff: f64) -> (f64, f64) {
    let steep = slope(activation, y);
    match activation {
        Activation::Relu if y <= 0.0 => (0.0, 0.0),
        Activation::Silu => (diff * steep, diff.abs() * (steep.abs() + 0.5 * scale)),
        _ => (diff, diff.abs()),
    }
}
