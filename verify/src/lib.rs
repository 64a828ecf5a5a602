//! A list of cases that shows whether an adapter computes what [`wgpu_norm`] should: every operation, algorithm,
//! element type and layout, compared with a float64 [`reference`](mod@reference).
//!
//! `wgpu-norm verify` runs the list, and so do `wgpu-norm`'s tests and its page for browsers. Each case has an ID that
//! describes it completely: parsing the ID gives the same case.
//!
//! ```
//! use wgpu_norm_verify::{Case, Outcome, cases};
//! use wgpu_norm::{Error, GpuContext};
//!
//! # pollster::block_on(async {
//! # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
//! assert!(cases(false).len() > 100);
//! let gpu = GpuContext::new().await?;
//! let case: Case = "layer_norm_backward/5x33/bf16-f32/in_place".parse()?;
//! match case.run(&gpu).await? {
//!     Outcome::Ran { error, fault: None, .. } => println!("{case}: {error} of the tolerance"),
//!     Outcome::Ran { fault: Some(fault), .. } => panic!("{case}: {fault}"),
//!     Outcome::Unsupported { reason } => println!("{case}: {reason}"),
//!     _ => {}
//! }
//! # Ok::<(), Error>(()) }).unwrap();
//! ```
//!
//! # The parts of an ID
//!
//! The operator and the shape of src come first; the other parts, separated by `/`, may be in any order.
//!
//! | part | means |
//! |---|---|
//! | `batch_norm_backward`, `layer_norm_backward`, `rms_norm_backward`, `group_norm_backward`, `instance_norm_backward` | the gradient of an operator |
//! | `batch_norm_forward`, `batch_norm_inference`, `layer_norm_forward`, `rms_norm_forward` | the operator; batch norm in training, or with given statistics |
//! | `group_norm_forward`, `group_norm_inference`, `instance_norm_forward`, `instance_norm_inference` | the operator, with the statistics of src, or with given ones |
//! | `axes_norm_backward`, `axes_norm_forward`, `axes_norm_inference` | the same over any axes |
//! | `over_1-2`, `along_0-1`, `along_none`, `uncentered` | axes norm: the axes of the statistics and of the parameters, by default the last one; the statistic is the mean of squares |
//! | `groups_4` | group norm: the number of groups, 1 by default |
//! | `ncx`, `nxc`, `params_4x1x6` | batch, group and instance norm: the layout; batch norm: also the shape of parameters of src's rank |
//! | `constant` | gradient of batch norm: [`Through::Constant`](wgpu_norm::Through::Constant) |
//! | `running`, `running_unbiased=0.1` | batch norm in training: running statistics, updated by the biased or unbiased variance, with the batch's weight, 0.25 by default |
//! | `axis_1` | layer and RMS norm: the first normalized axis, if it is not the last one |
//! | `residual` | a residual, added after the layer; layer and RMS norm: forward only, added before the layer |
//! | `relu`, `silu`, `gelu`, `gelu_tanh` | the activation after the layer |
//! | `no_statistics` | layer and RMS norm forward: the rows' statistics are not kept |
//! | `frozen` | gradients without those of the parameters |
//! | `zero_centered_gamma` | gamma is stored less 1 |
//! | `gate` | the layer's output is multiplied by a gate |
//! | `no_gamma`, `no_beta` | no gamma, no beta |
//! | `f32`, `f16-f32`, `f16-f16-f32` | the element type, or those of data and parameters, or those of data, parameters and statistics |
//! | `equal`, `alternating`, `alike` | equal diff_dst, or in a forward pass equal src; src that alternates between two values; tensors of equal elements |
//! | `tiny_variance`, `large_mean`, `huge_mean`, `wide`, `vast`, `overflow` | extreme statistics: a tiny variance; a mean of ten thousand or a million deviations; a variance beyond f16's range; squares of src beyond f32's range; results beyond f16's range |
//! | `patterns`, `roundings` | every number of a 16-bit type; numbers that are rounded to such a type, each to the nearest |
//! | `channels_first` and so on | the [`Algorithm`](wgpu_norm::Algorithm) to use |
//! | `gpu`, `software`, `tiny` | the [`Tuning`](wgpu_norm::Tuning) for that kind of adapter, or one that cuts small tensors like large ones |
//! | `tile=64,max_binding=4096` | other fields of the [`Profile`](wgpu_norm::Profile) and its tuning |
//! | `exact`, `pooled`, `in_place` | buffers that end with their tensors; one buffer for all tensors; a gradient that writes diff_src over diff_dst |
//! | `offset=3` | so many alignments before a buffer's first tensor; one, if none is given |
//! | `halves`, `two_shards` | batch norm's gradient: [`Bound::record_reduce`](wgpu_norm::Bound::record_reduce) and [`record_apply`](wgpu_norm::Bound::record_apply), on all samples or on two parts whose sums are added; batch norm in training: the same on all samples, or on two parts whose statistics are put side by side |
//! | `repeats`, `checked`, `windows=4096` | the same bits in each of three runs; with shader checks; with bindings of this many bytes |
//! | `nan`, `infinite` | such a value, placed in each input in turn, changes only what depends on it |
//! | `square_overflow` | likewise for a number whose square overflows; whatever depends on it is correct or not finite |
//!
//! Every case also asserts that nothing around its tensors changes. A [`Summary`] collects outcomes.
//!
//! # For other libraries
//!
//! [`Case::inputs`] returns the numbers that an operation reads, [`Case::expected`] those that it should write, with a
//! tolerance for each:
//!
//! ```
//! use wgpu_norm_verify::Case;
//! let case: Case = "batch_norm_backward/6x4/nxc/f32/no_gamma".parse()?;
//! let inputs = case.inputs()?;
//! let diff_dst = &inputs.iter().find(|input| input.name == "diff_dst").unwrap().values;
//! // Whatever computes diff_beta elsewhere; in float64 here.
//! let diff_beta: Vec<f64> = (0..4).map(|c| (0..6).map(|n| diff_dst[4 * n + c]).sum()).collect();
//! let expected = case.expected()?;
//! let want = expected.iter().find(|expected| expected.name() == "diff_beta").unwrap();
//! assert!(want.error(&diff_beta) <= 1.0);
//! # Ok::<(), wgpu_norm::Error>(())
//! ```

mod buffers;
mod case;
mod expected;
mod list;
mod numbers;
pub mod reference;
mod run;
mod setting;
mod summary;
mod tokens;
mod values;

pub use case::{Case, Input};
pub use expected::Expected;
pub use list::cases;
pub use numbers::Random;
pub use run::Outcome;
pub use summary::Summary;
