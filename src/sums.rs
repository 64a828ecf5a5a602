//! The sums that pass between the two halves of batch norm, and how the sums of several devices are merged.

use crate::element::DType;
use crate::error::Error;
use crate::memory;
use crate::operation::{Operation, Pass};
use bytemuck::Pod;
use std::ops::{Add, Div, Mul, Range, Sub};

/// The layout of the buffer [`Tensor::Sums`](crate::Tensor::Sums) between the two halves of batch norm.
///
/// [`Bound::record_reduce`](crate::Bound::record_reduce) writes the sums of this device's part of a batch.
/// [`merge`](Self::merge) merges those of all parts into the sums of the whole batch, which
/// [`Bound::record_apply`](crate::Bound::record_apply) reads on every device. The meaning of the bytes is not
/// specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsLayout {
    kind: Kind,
    is_f64: bool,
    channels: usize,
    /// The number of parts in the buffer; `index` is this device's part.
    parts: u64,
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A [`Channel`] for each channel.
    Statistics,
    /// Σ diff_dst of each channel, then Σ diff_dst · x̂ of each, then the number of elements in a channel.
    Gradient,
}

impl SumsLayout {
    /// The layout of an operation with halves.
    pub(crate) fn new(operation: &Operation) -> Self {
        let shape = operation.norm.params_shape(&operation.shape);
        let (kind, parts, index) = match &operation.pass {
            Pass::Forward(forward) => {
                let shards = forward.shards;
                (Kind::Statistics, shards.count.into(), shards.index.into())
            }
            _ => (Kind::Gradient, 1, 0),
        };
        Self {
            kind,
            is_f64: operation.types.data.accumulator() == DType::F64,
            channels: shape.iter().product(),
            parts,
            index,
        }
    }

    /// Bytes of the buffer. It holds one part, or in a forward pass as many parts as its
    /// [`Shards`](crate::synchronized::Shards) say, one after another, which the second half merges.
    pub fn bytes(&self) -> u64 {
        self.parts.saturating_mul(self.part_bytes())
    }

    /// The range of this device's part in the buffer.
    pub fn part(&self) -> Range<u64> {
        let start = self.index.saturating_mul(self.part_bytes());
        start..start.saturating_add(self.part_bytes())
    }

    /// Bytes of a part.
    pub(crate) fn part_bytes(&self) -> u64 {
        let channels = self.channels as u64;
        let reals = match self.kind {
            Kind::Statistics => channels.saturating_mul(4),
            Kind::Gradient => channels.saturating_mul(2).saturating_add(1),
        };
        reals.saturating_mul(if self.is_f64 { 8 } else { 4 })
    }

    /// Merges parts, in this order. The result is the same to the bit on every machine. A part of zeros has no
    /// elements.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a part that is not as long as [`part`](Self::part); [`Error::HostMemory`].
    pub fn merge(&self, parts: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let bytes = self.part_bytes();
        for part in parts {
            if part.len() as u64 != bytes {
                return Err(Error::argument(
                    "sums",
                    format!("{bytes} bytes of each part"),
                    part.len(),
                ));
            }
        }
        if self.is_f64 {
            self.merge_reals::<f64>(parts)
        } else {
            self.merge_reals::<f32>(parts)
        }
    }

    fn merge_reals<R: Real>(&self, parts: &[&[u8]]) -> Result<Vec<u8>, Error> {
        match self.kind {
            Kind::Statistics => {
                let none = std::iter::repeat_n([R::zeroed(); 4], self.channels);
                let mut merged = memory::collect("sums", none)?;
                for part in parts {
                    for (channel, other) in merged.iter_mut().zip(values(part)) {
                        *channel = merge(*channel, other);
                    }
                }
                memory::collect("sums", bytemuck::cast_slice(&merged).iter().copied())
            }
            Kind::Gradient => {
                let none = std::iter::repeat_n(0.0_f64, 2 * self.channels + 1);
                let mut merged = memory::collect("sums", none)?;
                for part in parts {
                    for (sum, other) in merged.iter_mut().zip(values::<R>(part)) {
                        *sum += other.into();
                    }
                }
                let merged = memory::collect("sums", merged.into_iter().map(R::of))?;
                memory::collect("sums", bytemuck::cast_slice(&merged).iter().copied())
            }
        }
    }

    /// Two numbers for each channel, from the merged sums: mean and variance, or Σ diff_dst and Σ diff_dst · x̂.
    pub(crate) fn of_channels(&self, merged: &[u8]) -> Result<[Vec<f64>; 2], Error> {
        if self.is_f64 {
            self.reals_of_channels::<f64>(merged)
        } else {
            self.reals_of_channels::<f32>(merged)
        }
    }

    fn reals_of_channels<R: Real>(&self, merged: &[u8]) -> Result<[Vec<f64>; 2], Error> {
        let (what, n) = ("sums", self.channels);
        Ok(match self.kind {
            Kind::Statistics => {
                let channels = || values::<Channel<R>>(merged).take(n);
                let means = memory::collect(what, channels().map(|channel| mean(channel).into()))?;
                let variances = channels().map(|channel| variance(channel).into());
                [means, memory::collect(what, variances)?]
            }
            Kind::Gradient => {
                let sums = || values::<R>(merged).map(R::into);
                let first = memory::collect(what, sums().take(n))?;
                [first, memory::collect(what, sums().skip(n).take(n))?]
            }
        })
    }
}

/// Values that need not be aligned.
fn values<V: Pod>(bytes: &[u8]) -> impl ExactSizeIterator<Item = V> {
    bytes
        .chunks_exact(size_of::<V>())
        .map(bytemuck::pod_read_unaligned)
}

/// A number type of kernels: f32 or f64.
trait Real:
    Pod
    + PartialOrd
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    fn of(value: f64) -> Self;
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// Statistics of a channel over a part of a batch, as kernels represent them: the number of elements, which may be 0; a
/// shift, which is a number near the mean; the mean minus the shift; and Σ (src − mean)².
///
/// The mean is split in two because one f32 is not exact enough if the mean is large compared with the standard
/// deviation.
type Channel<R> = [R; 4];

/// Merges the statistics of two parts by Chan's formula, as the kernels do.
fn merge<R: Real>(one: Channel<R>, other: Channel<R>) -> Channel<R> {
    let [count, shift, delta, m2] = one;
    let [other_count, other_shift, other_delta, other_m2] = other;
    let total = at_least_one(count + other_count);
    let step = (other_shift - shift) + (other_delta - delta);
    let from_one = delta + step * (other_count / total);
    let from_other = other_delta - step * (count / total);
    let weight = count * (other_count / total);
    // Keeps the shift that is nearer to the mean.
    let is_nearer = from_other.into().abs() < from_one.into().abs() && other_count > R::zeroed();
    let (shift, delta) = if count == R::zeroed() || is_nearer {
        (other_shift, from_other)
    } else {
        (shift, from_one)
    };
    let m2 = (m2 + other_m2) + step * (step * weight);
    [count + other_count, shift, delta, m2]
}

/// The mean; 0 without elements.
fn mean<R: Real>([_, shift, delta, _]: Channel<R>) -> R {
    shift + delta
}

/// The biased variance; 0 without elements.
fn variance<R: Real>([count, _, _, m2]: Channel<R>) -> R {
    m2 / at_least_one(count)
}

fn at_least_one<R: Real>(count: R) -> R {
    let one = R::of(1.0);
    if count > one { count } else { one }
}

#[cfg(test)]
mod tests {
    use super::{mean, merge, variance};

    #[test]
    fn parts_merge_to_the_whole() {
        let none = [0.0_f32; 4];
        let values = [1e6_f32, 1e6 + 1.0, 1e6 + 3.0, 1e6 + 4.0];
        let all = values.map(|x| [1.0, x, 0.0, 0.0]);
        let all = all.into_iter().fold(none, merge);
        assert_eq!((all[0], mean(all), variance(all)), (4.0, 1_000_002.0, 2.5));
        assert_eq!(merge(all, none), all);
        assert_eq!(merge(none, none), none);
    }
}
