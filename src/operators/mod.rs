//! Find your operator: the documents' own operators, with their attributes, argument names and index
//! order, over [`GpuBatchNorm`](crate::GpuBatchNorm) and [`GpuLayerNorm`](crate::GpuLayerNorm).
//!
//! | document | operator | here |
//! |---|---|---|
//! | oneDNN Graph | `BatchNormTrainingBackward` | [`onednn::BatchNormTrainingBackward`] |
//! | oneDNN Graph | `LayerNormBackward` | [`onednn::LayerNormBackward`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_GRAD_OPERATOR_DESC` | [`directml::BatchNormalizationGrad`] |
//! | DirectML | `DML_BATCH_NORMALIZATION_TRAINING_GRAD_OPERATOR_DESC` | [`directml::BatchNormalizationTrainingGrad`] |
//! | nGraph | `BatchNormTrainingBackprop` | [`ngraph::BatchNormTrainingBackprop`] |
//!
//! An operator is its attributes; they are checked when it is used. `backward` takes and gives host
//! memory. `plan` is the first of the three stages on the caller's buffers, and gives the plan types
//! that the rest of the crate has: [`BatchNormPlan`](crate::BatchNormPlan) and
//! [`LayerNormPlan`](crate::LayerNormPlan). Their buffers and the messages of
//! [`Error`](crate::Error) call the tensors `src`, `diff_dst`, `mean`, `variance`, `gamma`, `beta`,
//! `diff_src`, `diff_gamma` and `diff_beta`; each operator's table says which of its own is which.
//!
//! None computes anything of its own: whoever needs more (other element types, constant statistics, a
//! frozen layer) finds it in the two types above.
//!
//! # On device buffers
//!
//! ```
//! # pollster::block_on(async {
//! use wgpu_norm::operators::onednn::BatchNormTrainingBackward;
//! use wgpu_norm::{BatchNormBuffers, DataFormat, Error, GpuContext};
//!
//! let gpu = match GpuContext::new().await {
//!     Ok(gpu) => gpu,
//!     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
//!     Err(error) => return Err(error),
//! };
//! let op = BatchNormTrainingBackward {
//!     data_format: DataFormat::Ncx,
//!     ..BatchNormTrainingBackward::new(1e-5)
//! };
//! let plan = op.plan::<f32, f32>(&gpu, &[8, 16, 14, 14], true)?; // with gamma
//! let buffer = |elements: u64| {
//!     gpu.device().create_buffer(&wgpu::BufferDescriptor {
//!         label: None,
//!         size: 4 * elements,
//!         usage: wgpu::BufferUsages::STORAGE,
//!         mapped_at_creation: false,
//!     })
//! };
//! let (src, diff) = (buffer(8 * 16 * 14 * 14), buffer(8 * 16 * 14 * 14));
//! let params = [(); 5].map(|()| buffer(16));
//! let [mean, variance, gamma, diff_gamma, diff_beta] = &params;
//! let bound = plan.bind(
//!     &gpu,
//!     &BatchNormBuffers {
//!         src: (&src).into(),
//!         diff_dst: (&diff).into(),
//!         mean: mean.into(),
//!         variance: variance.into(),
//!         gamma: Some(gamma.into()),
//!         diff_src: (&diff).into(), // over diff_dst
//!         diff_gamma: Some(diff_gamma.into()),
//!         diff_beta: Some(diff_beta.into()),
//!         sums: None,
//!         workspace: None,
//!     },
//! )?;
//! let mut encoder = gpu.device().create_command_encoder(&Default::default());
//! bound.record(&mut encoder); // every step
//! gpu.queue().submit([encoder.finish()]);
//! # Ok(()) }).unwrap();
//! ```

pub mod directml;
pub mod ngraph;
pub mod onednn;
