//! The numbers that ranks exchange, merged on the host in the order of ranks.

use crate::{
    ChannelStatistics, DType, Element, Error, RunningStatistics, RunningUpdate, RunningVariance,
    memory,
};

/// As many bytes as asked for: nothing becomes zeros, which say of no elements.
pub(super) fn padded(mut bytes: Vec<u8>, size: usize) -> Result<Vec<u8>, Error> {
    if bytes
        .try_reserve_exact(size.saturating_sub(bytes.len()))
        .is_err()
    {
        let bytes = size as u64;
        return Err(Error::HostMemory {
            what: "sums",
            bytes,
        });
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Bytes of a real of the sums of such data.
fn real(data: DType) -> usize {
    match data.accumulator() {
        DType::F64 => 8,
        _ => 4,
    }
}

/// Reals of the type that sums have, as f64, exactly.
fn reals(data: DType, bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes
        .chunks_exact(real(data))
        .map(move |bytes| match data.accumulator() {
            DType::F64 => bytemuck::pod_read_unaligned::<f64>(bytes),
            _ => f64::from(bytemuck::pod_read_unaligned::<f32>(bytes)),
        })
}

fn write(data: DType, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match data.accumulator() {
            DType::F64 => bytes.extend(value.to_ne_bytes()),
            _ => bytes.extend((value as f32).to_ne_bytes()),
        }
    }
    bytes
}

/// Statistics of each channel, of all ranks.
pub(super) struct Merged {
    data: DType,
    channels: Vec<Channel>,
    /// Elements of each channel.
    count: u64,
}

/// A channel's statistics in the type of the sums, as f64, exactly.
#[derive(Clone, Copy)]
struct Channel {
    record: [f64; 4],
    mean: f64,
    variance: f64,
}

macro_rules! merged {
    ($real:ty, $bytes:expr, $channels:expr) => {{
        let none = std::iter::repeat_n(ChannelStatistics::<$real>::default(), $channels);
        let mut merged = memory::collect("statistics", none)?;
        let each = 4 * size_of::<$real>();
        for part in $bytes.chunks_exact(($channels * each).max(1)) {
            for (channel, record) in merged.iter_mut().zip(part.chunks_exact(each)) {
                *channel = channel.merge(bytemuck::pod_read_unaligned(record));
            }
        }
        let channels = merged.into_iter().map(|of| Channel {
            record: [of.count, of.shift, of.delta, of.m2].map(f64::from),
            mean: of.mean().into(),
            variance: of.variance().into(),
        });
        memory::collect("statistics", channels)?
    }};
}

impl Merged {
    /// Bytes of a rank's statistics.
    pub fn bytes(data: DType, channels: usize) -> usize {
        channels.saturating_mul(4 * real(data))
    }

    pub fn of(data: DType, all: &[u8], channels: usize, counts: &[u64]) -> Result<Self, Error> {
        Ok(Self {
            data,
            channels: match data.accumulator() {
                DType::F64 => merged!(f64, all, channels),
                _ => merged!(f32, all, channels),
            },
            count: counts
                .iter()
                .fold(0, |sum, &count| sum.saturating_add(count)),
        })
    }

    /// The one record of each channel that the second half goes on from.
    pub fn record(&self) -> Vec<u8> {
        write(
            self.data,
            self.channels.iter().flat_map(|channel| channel.record),
        )
    }

    pub fn mean<S: Element>(&self) -> Result<Vec<S>, Error> {
        let means = self
            .channels
            .iter()
            .map(|channel| S::from_f64(channel.mean));
        memory::collect("mean", means)
    }

    pub fn variance<S: Element>(&self) -> Result<Vec<S>, Error> {
        let variances = self
            .channels
            .iter()
            .map(|channel| S::from_f64(channel.variance));
        memory::collect("variance", variances)
    }

    /// An error if there is no such variance.
    pub fn check_update(&self, update: RunningUpdate) -> Result<(), Error> {
        match (update.variance, self.count) {
            (RunningVariance::Unbiased, 1) => Err(Error::Argument {
                argument: "running variance",
                expected: "channels of two elements at least on all ranks together, for the unbiased variance"
                    .to_owned(),
                got: "channels of one".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Takes the statistics into running ones; none of no elements.
    pub fn update<S: Element>(&self, running: RunningStatistics<'_, S>) {
        let factor = match (running.update.variance, self.count) {
            (_, 0) => return,
            (RunningVariance::Unbiased, count @ 2..) => count as f64 / (count - 1) as f64,
            _ => 1.0,
        };
        let weight = running.update.weight;
        let update = |old: &mut S, new: f64| {
            *old = S::from_f64((1.0 - weight) * old.to_f64() + weight * new);
        };
        let channels = self.channels.iter();
        for ((mean, variance), new) in running.mean.iter_mut().zip(running.variance).zip(channels) {
            update(mean, new.mean);
            update(variance, factor * new.variance);
        }
    }
}

/// A gradient's sums of each channel, of all ranks.
pub(super) struct Sums {
    data: DType,
    /// Σ diff_dst of each channel, then Σ diff_dst · x̂.
    sums: Vec<f64>,
    count: u64,
}

impl Sums {
    /// Bytes of a rank's sums: two of each channel, and the number of elements.
    pub fn bytes(data: DType, channels: usize) -> usize {
        channels
            .saturating_mul(2)
            .saturating_add(1)
            .saturating_mul(real(data))
    }

    pub fn of(data: DType, all: &[u8], channels: usize, counts: &[u64]) -> Result<Self, Error> {
        let mut sums = memory::collect("sums", std::iter::repeat_n(0.0, 2 * channels))?;
        for part in all.chunks_exact(Self::bytes(data, channels)) {
            for (sum, of_rank) in sums.iter_mut().zip(reals(data, part)) {
                *sum += of_rank;
            }
        }
        Ok(Self {
            data,
            sums,
            count: counts
                .iter()
                .fold(0, |sum, &count| sum.saturating_add(count)),
        })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let count = std::iter::once(self.count as f64);
        write(self.data, self.sums.iter().copied().chain(count))
    }

    pub fn diff_beta<P: Element>(&self) -> Result<Vec<P>, Error> {
        let (of_beta, _) = self.sums.split_at(self.sums.len() / 2);
        memory::collect("diff_beta", of_beta.iter().copied().map(P::from_f64))
    }

    pub fn diff_gamma<P: Element>(&self) -> Result<Vec<P>, Error> {
        let (_, of_gamma) = self.sums.split_at(self.sums.len() / 2);
        memory::collect("diff_gamma", of_gamma.iter().copied().map(P::from_f64))
    }
}
