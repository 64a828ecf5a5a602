//! The error type.

use crate::algorithm::Algorithm;
use crate::element::DType;
use crate::tensor::Tensor;

/// The reason why a call failed, with the values needed to fix the call.
///
/// Every variant but [`Error::DeviceLost`] leaves the context usable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's number of elements does not match the shape.
    #[error("{tensor}: expected {expected} elements{place}, got {got}{hint}")]
    #[non_exhaustive]
    Length {
        /// The argument.
        tensor: &'static str,
        /// Number of elements that the shape requires.
        expected: usize,
        /// Number of elements given.
        got: usize,
        /// The axis that the elements belong to, as the message's words; may be empty.
        place: String,
        /// What the given number suggests, likewise.
        hint: String,
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
    /// The element type of the parameters cannot be combined with that of the data.
    #[error("gamma and beta: expected {} for src of {data}, got {params}", params_of(*.data))]
    #[non_exhaustive]
    ParamDType {
        /// Element type of src.
        data: DType,
        /// Element type of the parameters.
        params: DType,
    },
    /// The element type of the statistics is neither that of the parameters nor f32 beside parameters of 16 bits.
    #[error("statistics: expected {params}{}, got {statistics}", if params.size() == 2 { " or f32" } else { "" })]
    #[non_exhaustive]
    StatisticsDType {
        /// Element type of gamma and beta.
        params: DType,
        /// Element type of the statistics.
        statistics: DType,
    },
    /// The adapter does not support this element type, or its device was opened without the feature that it needs.
    #[error("{dtype} tensors: expected a device with {needs}, got {adapter} without it")]
    #[non_exhaustive]
    UnsupportedDType {
        /// The element type.
        dtype: DType,
        /// The wgpu feature or capability that it needs.
        needs: &'static str,
        /// The adapter's name.
        adapter: String,
    },
    /// epsilon is not finite, normal and positive after rounding to the type in which it is used.
    #[error("epsilon: expected a finite, normal number above 0, got {got:?}{}", as_used(*.got, *.used, *.dtype))]
    #[non_exhaustive]
    Epsilon {
        /// epsilon as given.
        got: f64,
        /// epsilon after rounding.
        used: f64,
        /// The type in which epsilon is used.
        dtype: DType,
    },
    /// variance + epsilon is infinite or not above 0 in a channel (in a row for layer and RMS norm, in a group for
    /// group norm).
    #[error(
        "{argument}: expected {argument} + epsilon above 0 and finite, got {variance:?} + {epsilon:?} in {group} {channel}"
    )]
    #[non_exhaustive]
    Variance {
        /// The argument: `variance` or `mean_square`.
        argument: &'static str,
        /// The unit that has a variance of its own: `channel`, `row` or `group`.
        group: &'static str,
        /// Index of the first such channel, row or group; a flat index if the statistics have several axes.
        channel: usize,
        /// Its variance.
        variance: f64,
        /// epsilon.
        epsilon: f64,
    },
    /// The product of the sizes is too large.
    #[error("{what}: expected a size of at most {limit}, got the product of {shape:?}")]
    #[non_exhaustive]
    SizeOverflow {
        /// The argument.
        what: &'static str,
        /// The sizes.
        shape: Vec<usize>,
        /// The largest product allowed.
        limit: u64,
    },
    /// Another argument is invalid.
    #[error("{argument}: expected {expected}, got {got}")]
    #[non_exhaustive]
    Argument {
        /// The argument.
        argument: &'static str,
        /// The values allowed.
        expected: String,
        /// The value given.
        got: String,
    },
    /// A [`Tuning`](crate::Tuning) given as text is invalid, for instance that of the environment variable
    /// `WGPU_NORM_PROFILE`.
    #[error("profile: {key}: expected {expected}, got {got}")]
    #[non_exhaustive]
    Tuning {
        /// The field.
        key: String,
        /// The values allowed.
        expected: String,
        /// The value given.
        got: String,
    },
    /// The algorithm that the profile forces does not support the operation.
    #[error("algorithm: expected one that supports this operation, got {algorithm}: {reason}")]
    #[non_exhaustive]
    Algorithm {
        /// The algorithm.
        algorithm: Algorithm,
        /// The reason why it does not.
        reason: String,
    },
    /// A limit of the device or of the profile is exceeded.
    #[error("{what}: needs {needed}, but {limit} is {available}")]
    #[non_exhaustive]
    Limit {
        /// What exceeds it.
        what: String,
        /// The name of the limit.
        limit: &'static str,
        /// The amount needed.
        needed: u64,
        /// The amount available.
        available: u64,
    },
    /// A stream's memory budget is too small, whatever pieces the tensors are cut into. Some buffers stay in memory
    /// beside the pieces.
    #[error("memory budget: expected at least {expected} bytes for these tensors, got {got}")]
    #[non_exhaustive]
    Budget {
        /// Bytes needed.
        expected: u64,
        /// Bytes given.
        got: u64,
    },
    /// The processes that share a batch do not make the same call.
    #[error("{what}: expected the same on all ranks, got {got}")]
    #[non_exhaustive]
    Ranks {
        /// The property that differs.
        what: &'static str,
        /// Its value on each rank, with the rank numbers.
        got: String,
    },
    /// A range extends beyond the end of its buffer.
    #[error(
        "{tensor}: expected a range within the buffer's {buffer} bytes, got {size} bytes from offset {offset}"
    )]
    #[non_exhaustive]
    BufferRange {
        /// The argument.
        tensor: &'static str,
        /// Offset of the range, in bytes.
        offset: u64,
        /// Size of the range, in bytes.
        size: u64,
        /// Size of the buffer, in bytes.
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
        /// Bytes available.
        got: u64,
    },
    /// A buffer's offset is not aligned as the profile requires.
    #[error("{tensor}: expected a buffer offset that is a multiple of {alignment}, got {offset}")]
    #[non_exhaustive]
    BufferAlignment {
        /// The argument.
        tensor: &'static str,
        /// Offset given, in bytes.
        offset: u64,
        /// The profile's alignment: the device's `min_storage_buffer_offset_alignment`, but at least 32.
        alignment: u64,
    },
    /// A buffer lacks a usage.
    #[error("{tensor}: expected a buffer with {expected:?}, got {got:?}")]
    #[non_exhaustive]
    BufferUsage {
        /// The argument.
        tensor: &'static str,
        /// The usage that the buffer needs.
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
        /// wgpu's message.
        message: String,
    },
    /// Two buffer ranges overlap, and one of them is written. Only diff_src may lie over diff_dst, and only exactly.
    #[error("{first} and {second}: expected disjoint buffer ranges, got ranges that overlap")]
    #[non_exhaustive]
    Overlap {
        /// One argument.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A buffer is missing, or is given although the plan does not use it.
    #[error("{tensor}: expected {}, got {}",
        if *.expected { "a buffer" } else { "none, because this operation does not use it" }, if *.expected { "none" } else { "a buffer" })]
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
        /// The request.
        requested: String,
        /// The reason why no adapter fits.
        message: String,
    },
    /// The adapter could not open a device.
    #[error("device: {adapter} refused to open: {message}")]
    #[non_exhaustive]
    RequestDevice {
        /// The adapter.
        adapter: String,
        /// wgpu's message.
        message: String,
    },
    /// The device is lost; make a new context.
    #[error("the device is lost: {reason}")]
    #[non_exhaustive]
    DeviceLost {
        /// The reason, as far as it is known.
        reason: String,
    },
    /// The device ran out of memory for a buffer.
    #[error("{what}: out of memory for a buffer of {bytes} bytes")]
    #[non_exhaustive]
    OutOfMemory {
        /// What the buffer is for.
        what: &'static str,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The host ran out of memory for a vector of a tensor's size.
    #[error("{what}: expected {bytes} bytes of free memory, got less")]
    #[non_exhaustive]
    HostMemory {
        /// What the vector is for.
        what: &'static str,
        /// Its size in bytes.
        bytes: u64,
    },
    /// wgpu reported an error where there should be none, because of a bug in this crate or in a driver. Or a callback
    /// of the caller panicked while this crate polled the device.
    #[error("{operation}: {message}")]
    #[non_exhaustive]
    Gpu {
        /// The operation that failed.
        operation: String,
        /// The message of wgpu or of the panic.
        message: String,
    },
}

/// Constructors for crates that build on this one and report errors of their own checks.
impl Error {
    /// Makes an [`Error::Argument`].
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

    /// Makes the [`Error::BufferPresence`] of a tensor without a buffer.
    pub(crate) const fn no_buffer(tensor: Tensor) -> Self {
        Self::BufferPresence {
            tensor: tensor.name(),
            expected: true,
        }
    }

    /// Makes an [`Error::HostMemory`].
    pub(crate) const fn host_memory(what: &'static str, bytes: u64) -> Self {
        Self::HostMemory { what, bytes }
    }

    /// Makes an [`Error::OutOfMemory`].
    #[doc(hidden)]
    pub const fn out_of_memory(what: &'static str, bytes: u64) -> Self {
        Self::OutOfMemory { what, bytes }
    }

    /// Makes an [`Error::Gpu`].
    #[doc(hidden)]
    pub fn gpu(operation: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Gpu {
            operation: operation.into(),
            message: message.to_string(),
        }
    }

    /// The same error with another name of its argument.
    pub(crate) fn renamed(mut self, name: impl Fn(&'static str) -> &'static str) -> Self {
        if let Self::Length {
            tensor: argument, ..
        }
        | Self::Rank {
            tensor: argument, ..
        }
        | Self::SizeOverflow { what: argument, .. }
        | Self::Argument { argument, .. }
        | Self::Variance { argument, .. } = &mut self
        {
            *argument = name(argument);
        }
        self
    }

    /// Checks that no more is needed than the limit allows.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if more is needed.
    pub fn check_limit(
        what: impl std::fmt::Display,
        limit: &'static str,
        needed: impl Into<u64>,
        available: impl Into<u64>,
    ) -> Result<(), Self> {
        let (needed, available) = (needed.into(), available.into());
        if needed <= available {
            Ok(())
        } else {
            Err(Self::Limit {
                what: what.to_string(),
                limit,
                needed,
                available,
            })
        }
    }
}

fn ranks(min: usize, max: usize) -> String {
    if min == max {
        format!("rank {min}")
    } else {
        format!("a rank from {min} to {max}")
    }
}

/// The element types allowed for parameters beside data of this type.
fn params_of(data: DType) -> String {
    let all = DType::ALL.iter();
    let names = all.filter(|&&params| data.accepts_params(params));
    names.map(DType::to_string).collect::<Vec<_>>().join(" or ")
}

/// The value after rounding, if rounding changed it.
fn as_used(got: f64, used: f64, dtype: DType) -> String {
    if got == used || got.is_nan() {
        String::new()
    } else {
        format!(", which is {used:?} as {dtype}")
    }
}
