//! Element types, and which parameter types each data type allows.

use bytemuck::Pod;
use half::{bf16, f16};
use std::cmp::Ordering;
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an IEEE binary32.
    Bf16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

impl DType {
    /// Every element type.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F32, Self::F64];

    /// Size of one element in bytes.
    pub const fn size(self) -> u64 {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The type that sums are kept in: f64 for f64, else f32.
    pub const fn accumulator(self) -> Self {
        match self {
            Self::F64 => Self::F64,
            _ => Self::F32,
        }
    }

    /// Half a unit in the last place of 1.0: the relative error of one rounding to this type.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::F16 => 1.0 / (1u64 << 11) as f64,
            Self::Bf16 => 1.0 / (1u64 << 8) as f64,
            Self::F32 => 1.0 / (1u64 << 24) as f64,
            Self::F64 => 1.0 / (1u64 << 53) as f64,
        }
    }

    /// The values of elements, given as bytes in storage order and in the machine's byte order. Bytes at the end that
    /// do not make up an element are ignored.
    ///
    /// ```
    /// use wgpu_norm::{DType, bytemuck};
    /// let bytes = bytemuck::cast_slice(&[0.5_f32, -2.0]);
    /// assert!(DType::F32.values(bytes).eq([0.5, -2.0]));
    /// ```
    pub fn values(self, bytes: &[u8]) -> impl ExactSizeIterator<Item = f64> {
        let elements = bytes.chunks_exact(self.size() as usize);
        elements.map(move |element| match self {
            Self::F16 => bytemuck::pod_read_unaligned::<f16>(element).to_f64(),
            Self::Bf16 => bytemuck::pod_read_unaligned::<bf16>(element).to_f64(),
            Self::F32 => bytemuck::pod_read_unaligned::<f32>(element).into(),
            Self::F64 => bytemuck::pod_read_unaligned(element),
        })
    }

    /// The bytes of the elements nearest to these numbers.
    ///
    /// ```
    /// use wgpu_norm::DType;
    /// assert_eq!(DType::F32.encode([0.5, -2.0]), [0.5_f32.to_ne_bytes(), (-2.0_f32).to_ne_bytes()].concat());
    /// ```
    pub fn encode(self, numbers: impl IntoIterator<Item = f64>) -> Vec<u8> {
        fn of<T: Element>(numbers: impl Iterator<Item = f64>) -> Vec<u8> {
            let elements: Vec<T> = numbers.map(T::from_f64).collect();
            bytemuck::cast_slice(&elements).to_vec()
        }
        let numbers = numbers.into_iter();
        match self {
            Self::F16 => of::<f16>(numbers),
            Self::Bf16 => of::<bf16>(numbers),
            Self::F32 => of::<f32>(numbers),
            Self::F64 => of::<f64>(numbers),
        }
    }

    /// Whether data of this type allow parameters (gamma and beta) of type `params`: the data's own type, or f32 for
    /// f16 and bf16 data.
    pub const fn accepts_params(self, params: Self) -> bool {
        match self {
            Self::F16 => matches!(params, Self::F16 | Self::F32),
            Self::Bf16 => matches!(params, Self::Bf16 | Self::F32),
            Self::F32 => matches!(params, Self::F32),
            Self::F64 => matches!(params, Self::F64),
        }
    }
}

/// The element types of an operator's tensors.
///
/// ```
/// use wgpu_norm::{DType, DTypes};
/// let types = DTypes::from((DType::F16, DType::F16)); // of the data, and of the parameters
/// assert_eq!(types.statistics, DType::F32);
/// assert_eq!(types.with_statistics(DType::F16).statistics, DType::F16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DTypes {
    /// The type of src and of all tensors of its shape.
    pub data: DType,
    /// The type of gamma, beta, a gate and their gradients.
    pub params: DType,
    /// The type of the statistics (mean, variance, mean of squares, running statistics): f32 (f64 for f64 data), or on
    /// request the parameters' type if that has 16 bits. Statistics of 16 bits are less exact, and so are gradients
    /// computed from them: an f16 variance is infinite from 65,520 on, which is a standard deviation of 256, and 0 up
    /// to 3e-8; a bf16 mean has three digits.
    pub statistics: DType,
}

impl DTypes {
    /// These types, but statistics of another type.
    #[must_use]
    pub const fn with_statistics(self, statistics: DType) -> Self {
        Self { statistics, ..self }
    }
}

/// One type for data and parameters.
impl From<DType> for DTypes {
    fn from(dtype: DType) -> Self {
        Self::from((dtype, dtype))
    }
}

/// The types of the data and of the parameters. Statistics have the type of sums.
impl From<(DType, DType)> for DTypes {
    fn from((data, params): (DType, DType)) -> Self {
        Self {
            data,
            params,
            statistics: data.accumulator(),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A Rust type of tensor elements: [`half::f16`], [`half::bf16`], `f32` or `f64`.
pub trait Element: Pod + PartialEq + Send + Sync + fmt::Debug + sealed::Sealed {
    /// The type of sums, and of statistics unless another type is requested: f64 for f64, else f32.
    type Sum: ParamOf<Self>;

    /// Its [`DType`].
    const DTYPE: DType;

    /// The value as an f64, exactly.
    fn to_f64(self) -> f64;

    /// The nearest value of this type, ties to even.
    fn from_f64(value: f64) -> Self;
}

/// The f32 that rounds to the same 16-bit number as the value does. If the value lies between two f32 numbers, that is
/// the one whose last bit is set. `half`'s own conversion drops the value's lower bits, so it mistakes numbers just
/// above a midpoint for the midpoint.
fn rounded_to_odd(value: f64) -> f32 {
    let near = value as f32;
    let odd = near.to_bits() & 1 == 1;
    match f64::from(near).partial_cmp(&value) {
        Some(Ordering::Greater) if !odd => near.next_down(),
        Some(Ordering::Less) if !odd => near.next_up(),
        _ => near,
    }
}

impl Element for f16 {
    type Sum = f32;
    const DTYPE: DType = DType::F16;
    fn to_f64(self) -> f64 {
        f16::to_f64(self)
    }
    fn from_f64(value: f64) -> Self {
        f16::from_f32(rounded_to_odd(value))
    }
}

impl Element for bf16 {
    type Sum = f32;
    const DTYPE: DType = DType::Bf16;
    fn to_f64(self) -> f64 {
        bf16::to_f64(self)
    }
    fn from_f64(value: f64) -> Self {
        bf16::from_f32(rounded_to_odd(value))
    }
}

impl Element for f32 {
    type Sum = f32;
    const DTYPE: DType = DType::F32;
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Element for f64 {
    type Sum = f64;
    const DTYPE: DType = DType::F64;
    fn to_f64(self) -> f64 {
        self
    }
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// An element type that gamma and beta may have for data of type `T`.
///
/// ```compile_fail
/// fn needs<T: wgpu_norm::Element, P: wgpu_norm::ParamOf<T>>() {}
/// needs::<f32, half::f16>(); // f16 parameters go with f16 data only
/// ```
pub trait ParamOf<T: Element>: Element {}

impl ParamOf<f32> for f32 {}
impl ParamOf<f16> for f32 {}
impl ParamOf<bf16> for f32 {}
impl ParamOf<f16> for f16 {}
impl ParamOf<bf16> for bf16 {}
impl ParamOf<f64> for f64 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_number_of_16_bits() {
        // Just above the midpoint between 1 and the next number.
        let (f16_step, bf16_step) = (1.0 / 1024.0, 1.0 / 128.0);
        for little in [1e-9, 1e-15] {
            let above = 1.0 + f16_step / 2.0 + little;
            assert_eq!(<f16 as Element>::from_f64(above).to_f64(), 1.0 + f16_step);
            let above = 1.0 + bf16_step / 2.0 + little;
            assert_eq!(<bf16 as Element>::from_f64(above).to_f64(), 1.0 + bf16_step);
        }
        // The midpoint itself rounds to even.
        let middle = 1.0 + f16_step / 2.0;
        assert_eq!(<f16 as Element>::from_f64(middle).to_f64(), 1.0);
        // Subnormal numbers, and the ends of the range.
        let least = 2_f64.powi(-24);
        assert_eq!(
            <f16 as Element>::from_f64(least * 0.500_000_001).to_f64(),
            least
        );
        assert_eq!(<f16 as Element>::from_f64(least * 0.5).to_f64(), 0.0);
        assert_eq!(
            <f16 as Element>::from_f64(65_519.999_999).to_f64(),
            65_504.0
        );
        assert!(<f16 as Element>::from_f64(1e300).is_infinite());
        assert!(<bf16 as Element>::from_f64(-1e300).is_infinite());
        assert!(<bf16 as Element>::from_f64(f64::NAN).is_nan());
    }
}
