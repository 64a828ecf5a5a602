//! An operation's plan: its buffers and its dispatches.

use crate::algorithm::Algorithm;
use crate::bound::{Bound, BufferRange};
use crate::context::GpuContext;
use crate::error::Error;
use crate::export::{self, Dispatch};
use crate::operation::Operation;
use crate::profile::Profile;
use crate::sums::SumsLayout;
use crate::tensor::{Access, Tensor};
use crate::{bound, plan};
use std::collections::HashMap;

/// The dispatches of an operation on an adapter: the result of the first of
/// [three stages](crate::guide::own_buffers#three-stages).
///
/// Nothing is read back, so variance + epsilon is not checked: a channel, group or row where it is not above 0 becomes
/// NaN or infinite.
///
/// A compiled kernel depends on how buffers are bound: whether they are [padded](BufferUse::padded_bytes), whether one
/// buffer holds several tensors, and whether diff_src overwrites diff_dst. A program that always binds in the same way
/// compiles each plan once.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{Backward, DType, Error, GpuContext, Norm, Operation, Tensor, wgpu};
///
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// let norm = Norm::layer(-1);
/// let operation = Operation::new(norm, Backward::default(), &[64, 30], DType::F32);
/// let plan = operation.plan(gpu.profile())?;
/// let buffer = |size| {
///     gpu.device().create_buffer(&wgpu::BufferDescriptor {
///         label: None,
///         size,
///         usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
///         mapped_at_creation: false,
///     })
/// };
/// let uses = plan.buffers().into_iter().filter(|used| used.tensor != Tensor::Workspace);
/// let made: Vec<_> = uses.map(|used| (used.tensor, buffer(used.padded_bytes))).collect();
/// let buffers: Vec<_> = made.iter().map(|(tensor, buffer)| (*tensor, buffer.into())).collect();
/// let bound = plan.bind(&gpu, &buffers)?; // makes its own workspace
/// let mut encoder = gpu.device().create_command_encoder(&Default::default());
/// bound.record(&mut encoder); // every step
/// gpu.queue().submit([encoder.finish()]);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Plan {
    operation: Operation,
    plan: plan::Plan,
}

/// A buffer that a plan uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferUse {
    /// The tensor in it, or [`Tensor::Workspace`]: scratch memory, whose contents may be discarded after a recording,
    /// and between the two halves. [`Plan::sums`] describes [`Tensor::Sums`], which the halves exchange.
    pub tensor: Tensor,
    /// How it is used.
    pub access: Access,
    /// Bytes that it must have: those of the tensor, rounded up to a multiple of 4. If an odd number of f16 or bf16
    /// elements does not fill the last 4 bytes, 0 is written to the rest.
    pub bytes: u64,
    /// Bytes that it should have: those of the elements, rounded up to a multiple of four elements. Kernels can then
    /// load four elements at a time to the end; without the padding they are slower there. Bytes beyond
    /// [`bytes`](Self::bytes) do not change and have no effect.
    pub padded_bytes: u64,
}

impl Plan {
    /// The operation that it computes.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The algorithm of a recording of the whole operation.
    pub fn algorithm(&self) -> Algorithm {
        self.plan.algorithm
    }

    /// Names of the kernels of one recording, in order: one for each dispatch.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.plan.kernel_names()
    }

    /// The buffers of the whole operation: its tensors, and a workspace where it needs one.
    pub fn buffers(&self) -> Vec<BufferUse> {
        let slots = Operation::slots(&self.operation.norm, &self.operation.pass);
        let operands = self.plan.tensors.iter();
        let operands = operands.filter_map(|required| {
            let slot = slots.iter().find(|slot| slot.tensor == required.tensor)?;
            Some(BufferUse {
                tensor: required.tensor,
                access: slot.access,
                bytes: required.bytes(),
                padded_bytes: required.padded_bytes(),
            })
        });
        let bytes = self.workspace_bytes();
        let workspace = (bytes > 0).then_some(BufferUse {
            tensor: Tensor::Workspace,
            access: Access::InOut,
            bytes,
            padded_bytes: bytes,
        });
        operands.chain(workspace).collect()
    }

    /// Bytes of scratch memory of the whole operation.
    pub fn workspace_bytes(&self) -> u64 {
        self.plan.workspace_bytes
    }

    /// Bytes of scratch memory if [`Tensor::Sums`] is bound, so that the two halves can be recorded too.
    pub fn halves_workspace_bytes(&self) -> u64 {
        self.plan.halves_workspace_bytes
    }

    /// The buffer [`Tensor::Sums`] between the two halves, [`Bound::record_reduce`] and [`Bound::record_apply`]. None
    /// if there are no halves: for layers other than batch norm, for inference, and for more channels than a plan with
    /// halves has room for.
    pub fn sums(&self) -> Option<SumsLayout> {
        let sums = self.plan.requirement(Tensor::Sums);
        sums.map(|_| SumsLayout::new(&self.operation))
    }

    /// The dispatches of the whole operation, in order. `room` returns how many bytes may be bound from a tensor's
    /// start on, or none if the tensor has no buffer. Kernels load four elements at once to the end if there is room
    /// for the last four.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] for a tensor without a buffer, [`Error::BufferSize`] for one whose buffer is too
    /// small.
    pub fn dispatches(&self, room: impl Fn(Tensor) -> Option<u64>) -> Result<Vec<Dispatch>, Error> {
        for BufferUse { tensor, bytes, .. } in self.buffers() {
            let got = room(tensor).ok_or(Error::no_buffer(tensor))?;
            if got < bytes {
                return Err(Error::BufferSize {
                    tensor: tensor.name(),
                    expected: bytes,
                    got,
                });
            }
        }
        let room = |tensor| room(tensor).unwrap_or(0);
        let mut kernels = HashMap::new();
        let whole = self.plan.whole();
        Ok(whole
            .map(|part| export::export(&self.plan, part, room, &mut kernels))
            .collect())
    }

    /// Binds buffers: checks them, compiles missing pipelines, and creates bind groups and uniforms. If no workspace is
    /// given, it creates one if it needs one. If [`Tensor::Sums`] is given, the two halves can be recorded too; they
    /// may need [more scratch memory](Self::halves_workspace_bytes).
    ///
    /// Disjoint ranges of one buffer are fine. Ranges must not overlap if one of them is written, with one exception:
    /// diff_src may have exactly the range of diff_dst.
    ///
    /// # Errors
    ///
    /// A buffer that is too small, misaligned, without the usage STORAGE, of another device, destroyed, overlapping
    /// another, missing, given twice or not used; out of memory; device lost. In a browser, errors that the device
    /// itself finds (out of memory, a buffer of another device) come later, to the device's handler of uncaptured
    /// errors.
    pub fn bind(
        &self,
        gpu: &GpuContext,
        buffers: &[(Tensor, BufferRange<'_>)],
    ) -> Result<Bound, Error> {
        for (index, (tensor, _)) in buffers.iter().enumerate() {
            let mut before = buffers.iter().take(index);
            if before.any(|(known, _)| known == tensor) {
                return Err(Error::argument(tensor.name(), "one buffer", "two"));
            }
        }
        bound::bind(gpu, &self.plan, buffers)
    }

    pub(crate) fn inner(&self) -> &plan::Plan {
        &self.plan
    }
}

impl Operation {
    /// Plans the operation for an adapter with this profile. Pure: no GPU is touched.
    ///
    /// # Errors
    ///
    /// Errors in shape, types or options; [`Error::Limit`], [`Error::UnsupportedDType`] and [`Error::Algorithm`] if the
    /// adapter does not support the operation.
    pub fn plan(&self, profile: &Profile) -> Result<Plan, Error> {
        Ok(Plan {
            operation: self.clone(),
            plan: self.planned(profile)?,
        })
    }

    /// The plan alone.
    pub(crate) fn planned(&self, profile: &Profile) -> Result<plan::Plan, Error> {
        Ok(self.planned_or_unfit(profile)?)
    }

    /// The plan alone, or why it does not fit.
    pub(crate) fn planned_or_unfit(&self, profile: &Profile) -> Result<plan::Plan, plan::Unfit> {
        self.check()?;
        self.check_batch()?;
        let profile = plan::fit(profile, self.types, self.epsilon)?;
        plan::plan(&profile, &plan::Problem::new(self))
    }
}
