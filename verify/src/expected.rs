//! The expected results of a case.

use crate::numbers::size_of;
use crate::reference::{Computed, SUM_ULPS, scaled_error};
use half::{bf16, f16};
use wgpu_norm::{DType, Element, Format, Tensor, TensorUse};

/// A result of a case, by the float64 reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    pub(crate) tensor: Tensor,
    /// The element type of the result.
    pub dtype: DType,
    /// The number of elements.
    pub len: usize,
    /// The elements; a single one if all are equal. For a mask, which has a bit for each element, the activation's
    /// arguments: the bit is 1 if the argument is above 0 or NaN, and either value is correct if it is within the
    /// tolerance of 0.
    pub values: Vec<f64>,
    /// The size of each element's terms, to which the tolerance is proportional: see
    /// [`reference`](mod@crate::reference).
    pub scale: Vec<f64>,
}

/// The number of elements that are compared at a time.
const PART: usize = 1 << 16;

impl Expected {
    /// The reference's result for a tensor; it has fewer elements if all are equal.
    pub(crate) fn new(computed: Computed, used: &TensorUse, sums: DType) -> Self {
        Self {
            tensor: computed.tensor,
            dtype: match used.format {
                Format::Elements(dtype) => dtype,
                _ => sums,
            },
            len: used.shape.iter().product(),
            values: computed.values,
            scale: computed.scale,
        }
    }

    /// Its name: `diff_src` and so on.
    pub const fn name(&self) -> &'static str {
        self.tensor.name()
    }

    /// The largest error of a result in units of the tolerance, as in [`scaled_error`](crate::reference::scaled_error):
    /// above 1 fails.
    pub fn error(&self, got: &[f64]) -> f64 {
        self.worst(&self.dtype.encode(got.iter().copied())).1
    }

    /// The element with the largest error, and the error.
    pub(crate) fn worst(&self, bytes: &[u8]) -> (usize, f64) {
        if self.tensor == Tensor::Mask {
            return self.worst_bit(bytes);
        }
        if bytes.len() != self.len.saturating_mul(size_of(self.dtype)) {
            return (0, f64::INFINITY);
        }
        let mut worst = (0, 0.0);
        for (index, part) in bytes.chunks(PART * size_of(self.dtype)).enumerate() {
            let first = index * PART;
            let count = part.len() / size_of(self.dtype);
            let error = self.part_error(part, first, count);
            if error > worst.1 {
                worst = (first, error);
            }
        }
        let (first, error) = worst;
        if error <= 1.0 {
            return worst;
        }
        // Finds the element.
        let size = size_of(self.dtype);
        let part = bytes.get(first * size..).unwrap_or_default();
        let all = part.chunks_exact(size).enumerate();
        let found = all
            .take(PART)
            .find(|(index, element)| self.part_error(element, first + index, 1) >= error);
        (found.map_or(first, |(index, _)| first + index), error)
    }

    /// The first wrong bit of a mask, with an error of infinity.
    fn worst_bit(&self, bytes: &[u8]) -> (usize, f64) {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
        if words.len() != self.len.div_ceil(32) {
            return (0, f64::INFINITY);
        }
        let roundings = SUM_ULPS * self.dtype.unit_roundoff();
        let wrong = |&index: &usize| {
            let word = words.get(index / 32).copied().unwrap_or_default();
            let bit = word >> (index % 32) & 1 == 1;
            let value = self.at(index);
            let scale = self.scale.get(index).or(self.scale.first());
            let undecided = scale.is_some_and(|scale| value.abs() <= roundings * scale);
            // Bits after the last element are 0.
            let want = index < self.len && (value.is_nan() || value > 0.0);
            bit != want && !(undecided && index < self.len)
        };
        match (0..32 * words.len()).find(wrong) {
            Some(index) => (index, f64::INFINITY),
            None => (0, 0.0),
        }
    }

    /// The largest error of some elements from `first` on.
    fn part_error(&self, bytes: &[u8], first: usize, count: usize) -> f64 {
        fn of<T: Element>(bytes: &[u8], want: &[f64], scale: &[f64]) -> f64 {
            let got = bytemuck::pod_collect_to_vec::<u8, T>(bytes);
            scaled_error(&got, want, scale)
        }
        let part = |values: &[f64]| match values {
            [alike] => vec![*alike; count],
            all => all.get(first..first + count).unwrap_or_default().to_vec(),
        };
        let (want, scale) = (part(&self.values), part(&self.scale));
        match self.dtype {
            DType::F16 => of::<f16>(bytes, &want, &scale),
            DType::Bf16 => of::<bf16>(bytes, &want, &scale),
            DType::F32 => of::<f32>(bytes, &want, &scale),
            _ => of::<f64>(bytes, &want, &scale),
        }
    }

    /// The error of one element.
    pub(crate) fn error_at(&self, bytes: &[u8], index: usize) -> f64 {
        let size = size_of(self.dtype);
        let element = bytes.get(index * size..(index + 1) * size);
        element.map_or(f64::INFINITY, |element| self.part_error(element, index, 1))
    }

    /// The element that is expected there.
    pub(crate) fn at(&self, index: usize) -> f64 {
        let value = self.values.get(index).or(self.values.first());
        value.copied().unwrap_or(f64::NAN)
    }

    /// The first element that is not the nearest number of its type. A subnormal f32 number may be 0 of either sign:
    /// adapters may flush it before rounding it.
    pub(crate) fn not_nearest(&self, bytes: &[u8]) -> Option<usize> {
        let got = self.dtype.values(bytes);
        let nearest = self.dtype.encode(self.values.iter().copied());
        let nearest = self.dtype.values(&nearest);
        let same = |index: usize, got: f64, want: f64| {
            let flushed = got == 0.0 && self.at(index).abs() < f64::from(f32::MIN_POSITIVE);
            got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()) || flushed
        };
        let mut pairs = got.zip(nearest).enumerate();
        pairs
            .find(|&(index, (got, want))| !same(index, got, want))
            .map(|(index, _)| index)
    }
}
