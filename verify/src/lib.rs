//! A list of cases that shows whether an adapter computes what [`wgpu_norm`] should: every operation, algorithm, element type
//! and layout, held against a float64 [`reference`](mod@reference).
//!
//! `wgpu-norm verify` runs it, and so do `wgpu-norm`'s tests and its page for browsers. Each case has an ID that describes
//! it in full: the case can be made from it again.
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
//! The operator and the shape of src come first; the others, separated by `/`, may be in any order.
//!
//! | part | means |
//! |---|---|
//! | `batch_norm_backward`, `layer_norm_backward`, `rms_norm_backward`, `group_norm_backward`, `instance_norm_backward` | the gradient of an operator |
//! | `batch_norm_forward`, `batch_norm_inference`, `layer_norm_forward`, `rms_norm_forward` | the operator: batch norm in training, or by given statistics |
//! | `group_norm_forward`, `group_norm_inference`, `instance_norm_forward`, `instance_norm_inference` | the operator: by the statistics of src, or by given ones |
//! | `groups_4` | group norm: groups of a sample's channels, one where it is left out; with `ncx` or `nxc` |
//! | `ncx`, `nxc`, `params_4x1x6` | batch norm: the layout, or the shape of parameters of src's rank |
//! | `constant` | gradient of batch norm: [`Through::Constant`](wgpu_norm::Through::Constant) |
//! | `running`, `running_unbiased=0.1` | batch norm in training: running statistics, of which variance, and the batch's weight, 0.25 where it is left out |
//! | `axis_1` | layer and RMS norm: the first normalized axis, if it is not the last one |
//! | `residual`, `no_statistics` | layer and RMS norm forward: something is added before the layer; the rows' statistics are not kept |
//! | `frozen`, `neither` | gradients: [`ParamGrads`](wgpu_norm::ParamGrads) other than both |
//! | `no_gamma`, `no_beta` | no gamma, no beta; layer norm has neither without gamma |
//! | `f32`, `f16-f32`, `f16-f16-f32` | the element type, or those of data and parameters, or of data, parameters and statistics |
//! | `equal`, `alternating`, `alike` | equal diff_dst, of a forward pass equal src; src of two values in turn; tensors of equal elements |
//! | `tiny_variance`, `large_mean`, `huge_mean`, `wide`, `vast`, `overflow` | extreme statistics: the mean is ten thousand or a million deviations; the variance is beyond f16; the mean's square beyond f32; results beyond f16 |
//! | `patterns`, `roundings` | every number of a type of 16 bits; numbers that are rounded to one, each to the nearest |
//! | `channels_first` and so on | the [`Algorithm`](wgpu_norm::Algorithm) that is forced |
//! | `gpu`, `software`, `tiny` | the [`Tuning`](wgpu_norm::Tuning) for that kind of adapter, or one with which small tensors are cut like large ones |
//! | `tile=64,max_binding=4096` | other fields of the [`Profile`](wgpu_norm::Profile) and its tuning |
//! | `exact`, `pooled`, `in_place` | buffers that end with their tensors; one buffer for all; a gradient's diff_src over diff_dst |
//! | `halves`, `two_shards` | batch norm's gradient: [`Bound::record_reduce`](wgpu_norm::Bound::record_reduce) and [`record_apply`](wgpu_norm::Bound::record_apply), of all samples or of two parts whose sums are added; in training the same, of all samples or of two parts whose statistics are put side by side |
//! | `repeats`, `checked`, `windows=4096` | the same bits in each of three runs, with shader checks, with bindings of so many bytes |
//! | `nan`, `infinite` | such a value in each input in turn changes only what depends on it |
//! | `square_overflow` | so does a number whose square overflows, and what depends on it is right or not finite |
//!
//! Every case asserts besides that nothing around its tensors is changed.
//!
//! # For other libraries
//!
//! [`Case::inputs`] are the numbers that an operation reads, [`Case::expected`] those that it should write, with a
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
mod tokens;
mod values;

pub use case::{Case, Input};
pub use expected::Expected;
pub use list::cases;
pub use numbers::Random;
pub use run::Outcome;
