//! Statistics of parts of a batch, and how they merge.

use bytemuck::{Pod, Zeroable};

/// Statistics of a channel over a part of a batch: what
/// [`Bound::record_statistics`](crate::Bound::record_statistics) leaves, and
/// [`Bound::record_normalize`](crate::Bound::record_normalize) goes on from. `R` is f32, or f64 for f64 data.
///
/// The mean is in two parts, since one number of f32 does not hold it exactly enough where it is large beside the standard
/// deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct ChannelStatistics<R> {
    /// Elements; 0 is legal, of a part without samples.
    pub count: R,
    /// A number near the mean.
    pub shift: R,
    /// The mean, less shift.
    pub delta: R,
    /// Σ (src − mean)².
    pub m2: R,
}

// SAFETY: four numbers of one type one after another have no padding, and every pattern of bits is one of that type.
unsafe impl<R: Pod> Pod for ChannelStatistics<R> {}
// SAFETY: all fields are zeroable.
unsafe impl<R: Zeroable> Zeroable for ChannelStatistics<R> {}

macro_rules! merge {
    ($real:ty) => {
        impl ChannelStatistics<$real> {
            /// The statistics of both parts, by Chan's formula, as the kernels merge them. In a fixed order of parts the
            /// result is the same to the bit on every machine.
            ///
            /// ```
            /// use wgpu_norm::ChannelStatistics;
            /// let one = ChannelStatistics { count: 1.0_f32, shift: 2.0, delta: 0.0, m2: 0.0 };
            /// let other = ChannelStatistics { shift: 4.0, ..one };
            /// let both = one.merge(other);
            /// assert_eq!((both.count, both.mean(), both.variance()), (2.0, 3.0, 1.0));
            /// ```
            #[must_use]
            pub fn merge(self, other: Self) -> Self {
                let count = self.count + other.count;
                let total = count.max(1.0);
                let apart = other.shift - self.shift;
                let step = apart + (other.delta - self.delta);
                let from_self = self.delta + step * (other.count / total);
                let from_other = other.delta - step * (self.count / total);
                let weight = self.count * (other.count / total);
                let m2 = (self.m2 + other.m2) + step * (step * weight);
                // Of two shifts the one nearer to the mean.
                let nearer = from_other.abs() < from_self.abs() && other.count > 0.0;
                let (shift, delta) = match self.count == 0.0 || nearer {
                    true => (other.shift, from_other),
                    false => (self.shift, from_self),
                };
                Self {
                    count,
                    shift,
                    delta,
                    m2,
                }
            }

            /// The mean; 0 without elements.
            pub fn mean(self) -> $real {
                self.shift + self.delta
            }

            /// The biased variance; 0 without elements.
            pub fn variance(self) -> $real {
                self.m2 / self.count.max(1.0)
            }
        }
    };
}
merge!(f32);
merge!(f64);

#[cfg(test)]
mod tests {
    use super::ChannelStatistics;

    #[test]
    fn parts_merge_to_the_whole() {
        let of = |x: f32| ChannelStatistics {
            count: 1.0,
            shift: x,
            delta: 0.0,
            m2: 0.0,
        };
        let none = ChannelStatistics::<f32>::default();
        let values = [1e6_f32, 1e6 + 1.0, 1e6 + 3.0, 1e6 + 4.0];
        let all = values
            .into_iter()
            .map(of)
            .fold(none, ChannelStatistics::<f32>::merge);
        assert_eq!(
            (all.count, all.mean(), all.variance()),
            (4.0, 1_000_002.0, 2.5)
        );
        assert_eq!(all.merge(none), all);
        assert_eq!(none.merge(none), none);
    }
}
