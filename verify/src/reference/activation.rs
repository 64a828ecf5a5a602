//! Activations, and their gradients.

use std::f64::consts::{PI, SQRT_2};
use wgpu_norm::Activation;

/// The largest slope of an activation.
const STEEPEST: f64 = 1.2;

/// The result at `y`, and the size of its terms where those of `y` have size `scale`. At −∞ it is the limit, 0. An
/// activation that is not handled here gives NaN, which matches nothing.
pub(super) fn forward(activation: Activation, (y, scale): (f64, f64)) -> (f64, f64) {
    let value = match activation {
        Activation::None => return (y, scale),
        _ if y == f64::NEG_INFINITY => return (0.0, 0.0),
        Activation::Relu if y <= 0.0 => return (0.0, scale),
        Activation::Relu => return (y, scale),
        Activation::Silu => y / (1.0 + (-y).exp()),
        Activation::Gelu => y * normal(y),
        Activation::GeluTanh => y / (1.0 + (-2.0 * inner(y)).exp()),
        _ => f64::NAN,
    };
    (value, STEEPEST * scale)
}

fn slope(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::None => 1.0,
        _ if y.is_infinite() => f64::from(u8::from(y > 0.0)),
        // NaN passes.
        Activation::Relu => f64::from(u8::from(y.is_nan() || y > 0.0)),
        Activation::Silu => {
            let s = 1.0 / (1.0 + (-y).exp());
            s * (1.0 + y * (1.0 - s))
        }
        Activation::Gelu => normal(y) + y * (-0.5 * y * y).exp() / (2.0 * PI).sqrt(),
        Activation::GeluTanh => {
            let s = 1.0 / (1.0 + (-2.0 * inner(y)).exp());
            // 1 − s computed directly, as it is small where s is near 1.
            let rest = 1.0 / (1.0 + (2.0 * inner(y)).exp());
            let steep = (2.0 / PI).sqrt() * (1.0 + 3.0 * 0.044715 * y * y);
            s + y * (s * rest) * (2.0 * steep)
        }
        _ => f64::NAN,
    }
}

/// The normal distribution's Φ.
fn normal(y: f64) -> f64 {
    0.5 * libm::erfc(-y / SQRT_2)
}

/// The argument of tanh in GELU's approximation.
fn inner(y: f64) -> f64 {
    (2.0 / PI).sqrt() * (y + 0.044715 * y * y * y)
}

/// The gradient with respect to `y`, the activation's argument, from that with respect to its result; and the size of
/// its terms where those of `y` have size `scale`. Where relu does not pass, both are 0.
pub(super) fn backward(activation: Activation, (y, scale): (f64, f64), diff: f64) -> (f64, f64) {
    let steep = slope(activation, y);
    match activation {
        _ if y.is_infinite() => (diff * steep, diff.abs() * steep),
        Activation::Relu if y <= 0.0 => (0.0, 0.0),
        Activation::None | Activation::Relu => (diff, diff.abs()),
        // Bounds of the slope's own slope.
        Activation::Silu => (diff * steep, diff.abs() * (steep.abs() + 0.5 * scale)),
        _ => (diff * steep, diff.abs() * (steep.abs() + 0.8 * scale)),
    }
}
