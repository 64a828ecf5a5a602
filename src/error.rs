//! The one error type.

use crate::{Algorithm, DType};

/// What went wrong, with the values needed to mend the call.
///
/// Every variant but [`Error::DeviceLost`] leaves the context usable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's number of elements does not match the shape.
    #[error("{tensor}: expected {expected} elements, got {got}")]
    #[non_exhaustive]
    Length {
        /// The argument.
        tensor: &'static str,
        /// Elements that the shape asks for.
        expected: usize,
        /// Elements given.
        got: usize,
    },
    /// The rank of a shape is out of range.
    #[error("{tensor}: expected {}, got rank {got}", ranks(*.min, *.max))]
    #[non_exhaustive]
    Rank {
        /// The argument.
        tensor: &'static str,
        /// Smallest rank allowed.
        min: usize,
        /// Largest rank allowed.
        max: usize,
        /// Rank given.
        got: usize,
    },
    /// The parameters' element type does not go with the data's.
    #[error("gamma and beta: expected {} beside src of {data}, got {params}", params_of(*.data))]
    #[non_exhaustive]
    ParamDType {
        /// Element type of src.
        data: DType,
        /// Element type of the parameters.
        params: DType,
    },
    /// The element type of mean, variance and running statistics is neither the parameters' nor f32 beside one of 16 bits.
    #[error("statistics: expected {params}{}, got {statistics}", if params.size() == 2 { " or f32" } else { "" })]
    #[non_exhaustive]
    StatisticsDType {
        /// Element type of gamma and beta.
        params: DType,
        /// Element type of the statistics.
        statistics: DType,
    },
    /// The adapter cannot run this element type, or its device was opened without what that takes.
    #[error("{dtype} tensors: expected a device with {needs}, got one of {adapter} without it")]
    #[non_exhaustive]
    UnsupportedDType {
        /// The element type.
        dtype: DType,
        /// The wgpu feature or capability that it needs.
        needs: &'static str,
        /// The adapter's name.
        adapter: String,
    },
    /// epsilon is not finite, normal and positive once rounded to the type that it is used in.
    #[error("epsilon: expected a finite, normal number above 0, got {got:e}{}", as_used(*.got, *.used, *.dtype))]
    #[non_exhaustive]
    Epsilon {
        /// As given.
        got: f64,
        /// As used.
        used: f64,
        /// The type that it is used in.
        dtype: DType,
    },
    /// variance + epsilon is not above 0, or infinite, in a channel (of layer and RMS norm in a row, of group norm in a group).
    #[error(
        "{argument}: expected {argument} + epsilon above 0 and finite, got {variance} + {epsilon} in {group} {channel}"
    )]
    #[non_exhaustive]
    Variance {
        /// The argument: `variance`.
        argument: &'static str,
        /// What has a variance of its own: `channel`, `row` or `group`.
        group: &'static str,
        /// The first such channel, row or group (for statistics of several axes, the flat index).
        channel: usize,
        /// Its variance.
        variance: f64,
        /// epsilon.
        epsilon: f64,
    },
    /// A product of sizes does not fit.
    #[error("{what}: expected a size of at most {limit}, got the product of {shape:?}")]
    #[non_exhaustive]
    SizeOverflow {
        /// What the sizes are of.
        what: &'static str,
        /// The sizes.
        shape: Vec<usize>,
        /// The bound.
        limit: u64,
    },
    /// Another argument is not as it must be.
    #[error("{argument}: expected {expected}, got {got}")]
    #[non_exhaustive]
    Argument {
        /// The argument.
        argument: &'static str,
        /// What it must be.
        expected: String,
        /// What it was.
        got: String,
    },
    /// A tuning in text, as of the environment variable `WGPU_NORM_PROFILE`, makes no sense.
    #[error("profile: {key}: expected {expected}, got {got}")]
    #[non_exhaustive]
    Tuning {
        /// The field.
        key: String,
        /// What it may be.
        expected: String,
        /// What it was.
        got: String,
    },
    /// The algorithm that the profile forces cannot do the problem.
    #[error("algorithm: expected one that can do this, got {algorithm}: {reason}")]
    #[non_exhaustive]
    Algorithm {
        /// The algorithm.
        algorithm: Algorithm,
        /// Why it cannot.
        reason: String,
    },
    /// Something is larger than the device allows.
    #[error("{what}: needs {needed}, but {limit} is {available}")]
    #[non_exhaustive]
    Limit {
        /// What is too large.
        what: String,
        /// The device's limit.
        limit: &'static str,
        /// What is needed.
        needed: u64,
        /// What is available.
        available: u64,
    },
    /// A stream's memory budget is too small for any pieces that the tensors can be cut into, beside what has to stay in
    /// memory.
    #[error("memory budget: expected at least {expected} bytes for these tensors, got {got}")]
    #[non_exhaustive]
    Budget {
        /// Bytes needed.
        expected: u64,
        /// Bytes given.
        got: u64,
    },
    /// Processes that work on one batch do not do the same.
    #[error("{what}: expected the same on all ranks, got {got}")]
    #[non_exhaustive]
    Ranks {
        /// What differs.
        what: &'static str,
        /// What each has, with the ranks' numbers.
        got: String,
    },
    /// A range reaches beyond its buffer.
    #[error(
        "{tensor}: expected a range within the buffer's {buffer} bytes, got {size} bytes from {offset} on"
    )]
    #[non_exhaustive]
    BufferRange {
        /// The argument.
        tensor: &'static str,
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// A buffer's range is smaller than its tensor.
    #[error("{tensor}: expected a buffer range of at least {expected} bytes, got {got}")]
    #[non_exhaustive]
    BufferSize {
        /// The argument.
        tensor: &'static str,
        /// Bytes needed.
        expected: u64,
        /// Bytes there are.
        got: u64,
    },
    /// A buffer's offset does not have the adapter's alignment.
    #[error("{tensor}: expected a buffer offset that is a multiple of {alignment}, got {offset}")]
    #[non_exhaustive]
    BufferAlignment {
        /// The argument.
        tensor: &'static str,
        /// Offset given, in bytes.
        offset: u64,
        /// The profile's: the device's `min_storage_buffer_offset_alignment`, 32 at least.
        alignment: u64,
    },
    /// A buffer lacks a usage.
    #[error("{tensor}: expected a buffer with {expected:?}, got {got:?}")]
    #[non_exhaustive]
    BufferUsage {
        /// The argument.
        tensor: &'static str,
        /// Usage that is needed.
        expected: wgpu::BufferUsages,
        /// Usages that the buffer has.
        got: wgpu::BufferUsages,
    },
    /// A buffer belongs to another device, or was destroyed.
    #[error("{tensor}: expected a live buffer of this context's device, got: {message}")]
    #[non_exhaustive]
    ForeignBuffer {
        /// The argument.
        tensor: &'static str,
        /// What wgpu said.
        message: String,
    },
    /// Two buffer ranges overlap where only diff_src exactly over diff_dst may.
    #[error("{first} and {second}: expected disjoint buffer ranges, got ranges that overlap")]
    #[non_exhaustive]
    Overlap {
        /// One argument.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A buffer is missing, or given where there is no use for it.
    #[error("{tensor}: expected {}, got {}",
        if *.expected { "a buffer" } else { "none" }, if *.expected { "none" } else { "a buffer" })]
    #[non_exhaustive]
    BufferPresence {
        /// The argument.
        tensor: &'static str,
        /// Whether the plan uses it.
        expected: bool,
    },
    /// No adapter fits the request.
    #[error("adapter: expected {requested}, got none ({message})")]
    #[non_exhaustive]
    NoAdapter {
        /// What was asked for.
        requested: String,
        /// What there is, or what wgpu said.
        message: String,
    },
    /// The adapter would not give a device.
    #[error("device: {adapter} refused to open: {message}")]
    #[non_exhaustive]
    RequestDevice {
        /// The adapter.
        adapter: String,
        /// What wgpu said.
        message: String,
    },
    /// The device is lost; make a new context.
    #[error("the device is lost: {reason}")]
    #[non_exhaustive]
    DeviceLost {
        /// What is known of the reason.
        reason: String,
    },
    /// There was no memory for a buffer of the device.
    #[error("{what}: out of memory for a buffer of {bytes} bytes")]
    #[non_exhaustive]
    OutOfMemory {
        /// What the buffer is for.
        what: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// There was no memory for a vector as large as a tensor.
    #[error("{what}: expected {bytes} bytes of free memory, got less")]
    #[non_exhaustive]
    HostMemory {
        /// What the vector is for.
        what: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// wgpu refused something that should have been right, a bug of this crate or of a driver; or a callback
    /// of the caller's panicked where this crate polls the device.
    #[error("{operation}: {message}")]
    #[non_exhaustive]
    Gpu {
        /// What was being done.
        operation: String,
        /// What wgpu said.
        message: String,
    },
}

/// For crates that stand on this one: errors of what they check themselves.
impl Error {
    /// [`Error::Argument`].
    pub fn argument(
        argument: &'static str,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Argument {
            argument,
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    /// [`Error::HostMemory`].
    pub(crate) const fn host_memory(what: &'static str, bytes: u64) -> Self {
        Self::HostMemory { what, bytes }
    }

    /// [`Error::OutOfMemory`].
    pub const fn out_of_memory(what: &'static str, bytes: u64) -> Self {
        Self::OutOfMemory { what, bytes }
    }

    /// [`Error::Gpu`].
    pub fn gpu(operation: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Gpu {
            operation: operation.into(),
            message: message.to_string(),
        }
    }

    /// [`Error::Limit`], where more of something is needed than the device's limit.
    /// # Errors
    ///
    /// That one.
    pub fn check_limit(
        what: impl std::fmt::Display,
        limit: &'static str,
        needed: impl Into<u64>,
        available: impl Into<u64>,
    ) -> Result<(), Self> {
        let (needed, available) = (needed.into(), available.into());
        match needed <= available {
            true => Ok(()),
            false => Err(Self::Limit {
                what: what.to_string(),
                limit,
                needed,
                available,
            }),
        }
    }
}

fn ranks(min: usize, max: usize) -> String {
    match min == max {
        true => format!("rank {min}"),
        false => format!("a rank from {min} to {max}"),
    }
}

/// The types that parameters may have beside data of one.
fn params_of(data: DType) -> String {
    let all = DType::ALL.iter();
    let names = all.filter(|&&params| data.accepts_params(params));
    names.map(DType::to_string).collect::<Vec<_>>().join(" or ")
}

/// What rounding made of a number, if it is another.
fn as_used(got: f64, used: f64, dtype: DType) -> String {
    match got == used || got.is_nan() {
        true => String::new(),
        false => format!(", which is {used:e} as {dtype}"),
    }
}
