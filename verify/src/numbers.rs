//! Numbers that are the same in every run and on every platform, and their bytes.

use half::{bf16, f16};
use wgpu_norm::{DType, Element, Tensor};

/// A small generator of random numbers (SplitMix64).
///
/// ```
/// use wgpu_norm_verify::Random;
/// let mut random = Random::new(7);
/// assert_eq!(random.bits(), 7191089600892374487);
/// assert!((-1.0..1.0).contains(&random.unit()));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers are determined by the seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in [-1, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// `len` elements, uniform in offset ± scale.
    pub fn vec<T: Element>(&mut self, len: usize, scale: f64, offset: f64) -> Vec<T> {
        (0..len)
            .map(|_| T::from_f64(self.unit() * scale + offset))
            .collect()
    }
}

/// A tensor's elements, as exact values of its element type; for a mask its bits, 0 or 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub tensor: Tensor,
    pub dtype: DType,
    /// The number of elements.
    pub len: usize,
    /// Their values, repeated from the first one if there are fewer than elements.
    pub values: Vec<f64>,
}

impl Numbers {
    /// The values, rounded to the nearest numbers of an element type.
    pub fn new(tensor: Tensor, dtype: DType, len: usize, values: Vec<f64>) -> Self {
        let values = dtype.values(&dtype.encode(values)).collect();
        Self {
            tensor,
            dtype,
            len,
            values,
        }
    }

    /// Sets an element to the number nearest to a value.
    pub fn set(&mut self, index: usize, value: f64) {
        let nearest = self.dtype.encode([value]);
        let mut nearest = self.dtype.values(&nearest);
        if let (Some(place), Some(nearest)) = (self.values.get_mut(index), nearest.next()) {
            *place = nearest;
        }
    }

    /// The bytes in memory.
    pub fn bytes(&self) -> Vec<u8> {
        if self.tensor == Tensor::Mask {
            let bits = self.values.iter().cycle().take(self.len);
            let bits: Vec<bool> = bits.map(|&bit| bit != 0.0).collect();
            let words = bits.chunks(32).map(word_of_bits);
            return words.flat_map(u32::to_ne_bytes).collect();
        }
        let bytes = self.dtype.encode(self.values.iter().copied());
        match self.values.len() >= self.len {
            true => bytes,
            false => {
                let all = self.len.saturating_mul(size_of(self.dtype));
                bytes.into_iter().cycle().take(all).collect()
            }
        }
    }

    /// A range of the elements.
    pub fn part(&self, elements: std::ops::Range<usize>) -> Self {
        let values = match self.values.get(elements.clone()) {
            Some(part) => part.to_vec(),
            None => self.values.clone(), // all alike
        };
        Self {
            len: elements.len(),
            values,
            ..self.clone()
        }
    }
}

/// A word of a mask, from up to 32 bits, the lowest first.
pub(crate) fn word_of_bits(bits: &[bool]) -> u32 {
    let bits = bits.iter().rev();
    bits.fold(0, |word, &bit| word << 1 | u32::from(bit))
}

/// The size of an element in bytes.
pub(crate) const fn size_of(dtype: DType) -> usize {
    dtype.size() as usize
}

/// Every number of a 16-bit type, and one more, so that at the next repetition each is in the other half of a word.
pub(crate) fn patterns(dtype: DType) -> Vec<f64> {
    let value = |bits: u16| match dtype {
        DType::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    };
    (0..=u16::MAX).map(value).chain([1.0]).collect()
}

/// f32 numbers at, just below and just above the middle between neighbours of a 16-bit type; its ends; and some others.
pub(crate) fn roundings(dtype: DType) -> Vec<f64> {
    let all = patterns(dtype);
    let mut numbers = Vec::new();
    for pair in all.windows(2).take(0x7fff).step_by(3) {
        let middle = (pair.iter().sum::<f64>() / 2.0) as f32;
        for value in [middle, middle.next_down(), middle.next_up()] {
            numbers.extend([value, -value]);
        }
    }
    let end = 65_520.0_f32; // from here on an f16 is infinite
    numbers.extend([65_504.0, end.next_down(), end, 65_536.0, f32::MAX]);
    let least = 2_f32.powi(-25); // up to here it is 0
    numbers.extend([2.0 * least, least, least.next_up(), least / 2.0]);
    let mut random = Random::new(5);
    numbers.extend((0..4096).map(|_| f32::from_bits(random.bits() as u32)));
    let finite = numbers.into_iter().filter(|number| number.is_finite());
    finite.map(f64::from).collect()
}
