//! The guide: pages on topics that concern more than one item of the crate.
//!
//! Begin with [`training`], or with [`own_buffers`] if you have a device of your own; [`how_it_works`] and [`limits`]
//! are to look things up.
//!
//! Other modules document topics of their own: [`operators`](crate::operators) the operators of other libraries,
//! [`synchronized`](crate::synchronized) a batch over several processes or devices, [`stream`](crate::stream) tensors
//! larger than memory, and [`export`](crate::export) plans for another framework's launcher.

/// [Activation]: crate::Activation
/// [BackwardArgs::without_beta]: crate::BackwardArgs::without_beta
/// [DTypes]: crate::DTypes
/// [DTypes::with_statistics]: crate::DTypes::with_statistics
/// [DataFormat::Ncx]: crate::DataFormat::Ncx
/// [DataFormat::Nxc]: crate::DataFormat::Nxc
/// [ForwardArgs::gate]: crate::ForwardArgs::gate
/// [ForwardArgs::residual_after]: crate::ForwardArgs::residual_after
/// [ForwardArgs::residual_before]: crate::ForwardArgs::residual_before
/// [ForwardArgs::running]: crate::ForwardArgs::running
/// [ForwardArgs::without_statistics]: crate::ForwardArgs::without_statistics
/// [GpuAxesNorm]: crate::GpuAxesNorm
/// [GpuBatchNorm]: crate::GpuBatchNorm
/// [GpuBatchNorm::infer]: crate::GpuBatchNorm::infer
/// [GpuContext::forget_pipelines]: crate::GpuContext::forget_pipelines
/// [GpuGroupNorm]: crate::GpuGroupNorm
/// [GpuInstanceNorm]: crate::GpuInstanceNorm
/// [GpuLayerNorm]: crate::GpuLayerNorm
/// [GpuRmsNorm]: crate::GpuRmsNorm
/// [Grads::diff_gate]: crate::Grads::diff_gate
/// [Grads::diff_residual]: crate::Grads::diff_residual
/// [Operation]: crate::Operation
/// [ParamOf]: crate::ParamOf
/// [Parameters]: crate::Parameters
/// [Parameters::running]: crate::Parameters::running
/// [Plan::bind]: crate::Plan::bind
/// [RunningStatistics]: crate::RunningStatistics
/// [RunningUpdate::weight]: crate::RunningUpdate::weight
/// [RunningVariance]: crate::RunningVariance
/// [RunningVariance::Unbiased]: crate::RunningVariance::Unbiased
/// [Saved]: crate::Saved
/// [Saved::mask]: crate::Saved::mask
/// [SavedRef]: crate::SavedRef
/// [Through::Constant]: crate::Through::Constant
/// [crate]: crate
/// [guide::own_buffers]: crate::guide::own_buffers
/// [operators]: crate::operators
/// [operators::pytorch]: crate::operators::pytorch
/// [synchronized::SyncBatchNorm]: crate::synchronized::SyncBatchNorm
///
#[doc = include_str!("../docs/guide/training.md")]
pub mod training {}

/// [Bound::record]: crate::Bound::record
/// [Bound::record_apply]: crate::Bound::record_apply
/// [Bound::record_apply_in]: crate::Bound::record_apply_in
/// [Bound::record_in]: crate::Bound::record_in
/// [Bound::record_reduce]: crate::Bound::record_reduce
/// [Bound::record_reduce_in]: crate::Bound::record_reduce_in
/// [BufferRange]: crate::BufferRange
/// [GpuAxesNorm]: crate::GpuAxesNorm
/// [GpuContext::USEFUL_FEATURES]: crate::GpuContext::USEFUL_FEATURES
/// [GpuContext::from_device]: crate::GpuContext::from_device
/// [GpuContext::probe_f16]: crate::GpuContext::probe_f16
/// [Norm]: crate::Norm
/// [Norm::axes]: crate::Norm::axes
/// [Operation]: crate::Operation
/// [Operation::gradient]: crate::Operation::gradient
/// [Operation::plan]: crate::Operation::plan
/// [Operation::tensors]: crate::Operation::tensors
/// [Operation::with_epilogue]: crate::Operation::with_epilogue
/// [Operation::with_epsilon]: crate::Operation::with_epsilon
/// [Operation::with_gate]: crate::Operation::with_gate
/// [Operation::with_params]: crate::Operation::with_params
/// [Operation::with_zero_centered_gamma]: crate::Operation::with_zero_centered_gamma
/// [Operation::without_param_grads]: crate::Operation::without_param_grads
/// [Plan::bind]: crate::Plan::bind
/// [Plan::buffers]: crate::Plan::buffers
/// [Plan::sums]: crate::Plan::sums
/// [Tensor::Sums]: crate::Tensor::Sums
/// [synchronized]: crate::synchronized
/// [synchronized::Shards]: crate::synchronized::Shards
/// [synchronized::SumsLayout::merge]: crate::synchronized::SumsLayout::merge
///
#[doc = include_str!("../docs/guide/own_buffers.md")]
pub mod own_buffers {}

/// [Algorithm]: crate::Algorithm
/// [F16Encoder]: crate::F16Encoder
/// [GpuBatchNorm]: crate::GpuBatchNorm
/// [GpuGroupNorm]: crate::GpuGroupNorm
/// [GpuInstanceNorm]: crate::GpuInstanceNorm
/// [GpuLayerNorm]: crate::GpuLayerNorm
/// [GpuRmsNorm]: crate::GpuRmsNorm
/// [Plan::algorithm]: crate::Plan::algorithm
/// [Plan::kernels]: crate::Plan::kernels
/// [Profile]: crate::Profile
/// [Profile::algorithm]: crate::Profile::algorithm
///
#[doc = include_str!("../docs/guide/how_it_works.md")]
pub mod how_it_works {}

/// [Bound::record]: crate::Bound::record
/// [Error::UnsupportedDType]: crate::Error::UnsupportedDType
/// [GpuContext::supports]: crate::GpuContext::supports
/// [Plan::bind]: crate::Plan::bind
/// [Plan::workspace_bytes]: crate::Plan::workspace_bytes
/// [Tuning::GPU]: crate::Tuning::GPU
/// [guide::how_it_works#the-same-bits]: crate::guide::how_it_works#the-same-bits
/// [stream]: crate::stream
///
#[doc = include_str!("../docs/guide/limits.md")]
pub mod limits {}
