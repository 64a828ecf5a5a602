//! Numbers as stored in files and memory.

use half::{bf16, f16};
use wgpu_norm::{DType, Error, Tensor, support};

/// Room for a tensor's bytes, or an error if there is not as much memory.
pub fn zeros(tensor: Tensor, bytes: u64) -> Result<Vec<u8>, Error> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    support::filled(tensor.name(), bytes, 0)
}

pub fn slices<T>(tensors: &[(Tensor, Vec<T>)]) -> Vec<(Tensor, &[T])> {
    let tensors = tensors.iter();
    tensors.map(|(tensor, all)| (*tensor, &**all)).collect()
}

pub fn slices_mut<T>(tensors: &mut [(Tensor, Vec<T>)]) -> Vec<(Tensor, &mut [T])> {
    let tensors = tensors.iter_mut();
    tensors.map(|(tensor, all)| (*tensor, &mut **all)).collect()
}

/// The number of elements that are not finite: the exponent's bits are all set.
pub fn lost(dtype: DType, bytes: &[u8]) -> usize {
    count(dtype, bytes, true)
}

/// The number of elements that are 0 or subnormal: no bit of the exponent is set.
pub fn small(dtype: DType, bytes: &[u8]) -> usize {
    count(dtype, bytes, false)
}

/// The smallest normal number.
pub fn least(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MIN_POSITIVE.to_f64(),
        DType::Bf16 => bf16::MIN_POSITIVE.to_f64(),
        DType::F32 => f32::MIN_POSITIVE.into(),
        _ => f64::MIN_POSITIVE,
    }
}

/// Counts the elements whose exponent has all bits set, or none of them.
fn count(dtype: DType, bytes: &[u8], all: bool) -> usize {
    // Bitwise and without branches, so that many elements are processed at a time.
    macro_rules! count {
        ($bits:ty, $exponent:expr) => {{
            let (elements, _) = bytes.as_chunks();
            let wanted = if all { $exponent } else { 0 };
            let is = |element: &_| <$bits>::from_ne_bytes(*element) & $exponent == wanted;
            elements
                .iter()
                .map(|element| usize::from(is(element)))
                .sum()
        }};
    }
    match dtype {
        DType::F16 => count!(u16, 0x7c00),
        DType::Bf16 => count!(u16, 0x7f80),
        DType::F32 => count!(u32, 0x7f80_0000),
        _ => count!(u64, 0x7ff0_0000_0000_0000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_by_their_exponent() {
        let values = [
            0.0,
            -1.0,
            f64::NAN,
            f64::NEG_INFINITY,
            2.0,
            -0.0,
            f64::INFINITY,
        ];
        let bytes = bytemuck::cast_slice(&values);
        for dtype in DType::ALL {
            let bytes = dtype.encode(DType::F64.values(bytes));
            assert_eq!(
                (lost(dtype, &bytes), small(dtype, &bytes)),
                (3, 2),
                "{dtype}"
            );
        }
        let smallest = (0.5 * least(DType::F16)).to_ne_bytes();
        let smallest = DType::F16.encode(DType::F64.values(&smallest));
        assert_eq!((small(DType::F16, &smallest), smallest.len()), (1, 2));
    }
}
