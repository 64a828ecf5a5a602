//! The error that a result may have.

use wgpu_norm::{DType, Element};

/// The error of the arithmetic that [`scaled_error`] allows, in unit roundoffs of the sums' type.
///
/// If a kernel's invocations add serially in 4 accumulators, which a tree then adds, f32 sums of random terms, of one
/// sign or both, came out within 2 units for 1024 and for 4096 adds per invocation: roundings have random signs, and
/// the scale counts every term as if all had one sign. *Equal* terms are the worst case (the gradient of a mean is such
/// a diff_dst): their roundings agree in sign, and the error was up to a quarter of the adds per accumulator. So 64
/// stands for 256 adds per accumulator, 1024 per invocation. Kernels that add more in one chain exceed it on such data;
/// with random data they do so only much later.
pub const SUM_ULPS: f64 = 64.0;

/// Largest |got − want| in units of the tolerance: above 1 fails. The [module](super) defines the tolerance.
///
/// If `want` is not finite, any result that is not finite is correct: the order of a sum decides whether infinite terms
/// make it infinite or NaN. If `want` is finite but beyond the range of `T`, or so near its end that the tolerance
/// reaches beyond, infinity is also correct; NaN is not, unless the scale is negative. A mismatch in this, different
/// lengths, or a scale that is not finite with a finite `want` give infinity.
#[must_use]
pub fn scaled_error<T: Element>(got: &[T], want: &[f64], scale: &[f64]) -> f64 {
    if got.len() != want.len() || want.len() != scale.len() {
        return f64::INFINITY;
    }
    let pairs = got.iter().zip(want).zip(scale);
    pairs
        .map(|((&got, &want), &scale)| element_error::<T>(got.to_f64(), want, scale))
        .fold(0.0, f64::max)
}

/// The [`scaled_error`] of one element. Never NaN, which `f64::max` would drop.
fn element_error<T: Element>(got: f64, want: f64, scale: f64) -> f64 {
    let matches = |same: bool| if same { 0.0 } else { f64::INFINITY };
    if got.is_nan() && scale < 0.0 {
        return 0.0;
    }
    if got.is_nan() || !want.is_finite() {
        return matches(!got.is_finite() && !want.is_finite());
    }
    if !scale.is_finite() {
        return f64::INFINITY;
    }
    let accumulator = T::DTYPE.accumulator();
    let sums = SUM_ULPS * accumulator.unit_roundoff() * scale.abs();
    if got.is_infinite() {
        let farthest = T::from_f64(want + sums.copysign(got));
        return matches(farthest.to_f64() == got);
    }
    // For f32 and f64 `sums` covers the last rounding, as |want| is at most the scale.
    let is_narrow = T::DTYPE != accumulator;
    let storage = f64::from(is_narrow) * T::DTYPE.unit_roundoff() * want.abs();
    let floor = match T::DTYPE {
        DType::F16 => 1.0 / (1u64 << 25) as f64,
        DType::Bf16 | DType::F32 => f64::from(f32::MIN_POSITIVE),
        _ => f64::MIN_POSITIVE,
    };
    (got - want).abs() / (sums + storage + floor)
}
