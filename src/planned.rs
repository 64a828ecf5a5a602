//! An operation's plan: what to bind, and what to dispatch.

use crate::export::{self, Dispatch};
use crate::{
    Access, Algorithm, Bound, BufferRange, Error, GpuContext, Operation, Profile, SumsLayout,
    Tensor, bound, plan,
};

/// What to dispatch for an operation on an adapter: the first of three stages.
///
/// 1. [`Operation::plan`], once for an operation: pure, no GPU object is made.
/// 2. [`Plan::bind`], once for a set of buffers: checks everything, makes bind groups.
/// 3. [`Bound::record`], every step: writes commands into the caller's encoder, nothing else.
///
/// Nothing is read back, so variance + epsilon is not checked: a channel, group or row where it is not above 0 becomes NaN or
/// infinite.
///
/// How buffers are bound is part of a compiled kernel: whether they are [padded](BufferUse::padded_bytes), whether one buffer
/// holds several tensors, and whether diff_src takes diff_dst's place. A program that always does the same compiles each plan
/// once.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{Backward, DType, Error, GpuContext, Norm, Operation, Tensor, wgpu};
///
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// let norm = Norm::Layer { begin_axis: -1 };
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

/// A buffer that a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferUse {
    /// The tensor that is in it, or [`Tensor::Workspace`]: scratch memory, whose contents need not outlast a recording, nor the
    /// first of two halves. What the halves exchange, [`Tensor::Sums`], is [`Plan::sums`]'.
    pub tensor: Tensor,
    /// How it is used.
    pub access: Access,
    /// Bytes that it must have: the tensor's own, up to the next multiple of 4. Where an odd number of f16 or bf16 elements
    /// does not fill the last 4, the rest of them is written as 0.
    pub bytes: u64,
    /// Bytes that it had best have: those of the elements up to the next multiple of four. Kernels load four elements at a
    /// time to the end then; without the padding they do so more slowly. What is beyond [`bytes`](Self::bytes) is not changed
    /// and does not count.
    pub padded_bytes: u64,
}

impl Plan {
    /// The operation that it computes.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The algorithm of one recording of the whole operation.
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
        let workspace = (self.plan.workspace_bytes > 0).then_some(BufferUse {
            tensor: Tensor::Workspace,
            access: Access::InOut,
            bytes: self.plan.workspace_bytes,
            padded_bytes: self.plan.workspace_bytes,
        });
        operands.chain(workspace).collect()
    }

    /// Bytes of scratch memory.
    pub fn workspace_bytes(&self) -> u64 {
        self.plan.workspace_bytes
    }

    /// The buffer [`Tensor::Sums`] between the two halves, [`Bound::record_reduce`] and [`Bound::record_apply`]; none where
    /// there are no halves: of other layers than batch norm, of inference, and where there are so many channels that a plan has
    /// no room for halves.
    pub fn sums(&self) -> Option<SumsLayout> {
        let sums = self.plan.requirement(Tensor::Sums);
        sums.map(|_| SumsLayout::new(&self.operation))
    }

    /// The dispatches of the whole operation, in order. `room` says how many bytes may be bound of a tensor's buffer from
    /// the tensor's start on, none if it has no buffer: kernels load four elements at once to the end where there is room
    /// for the last four.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] and [`Error::BufferSize`], naming a tensor without a buffer, or with too small a one.
    pub fn dispatches(&self, room: impl Fn(Tensor) -> Option<u64>) -> Result<Vec<Dispatch>, Error> {
        for BufferUse { tensor, bytes, .. } in self.buffers() {
            let got = room(tensor).ok_or(Error::BufferPresence {
                tensor: tensor.name(),
                expected: true,
            })?;
            if got < bytes {
                return Err(Error::BufferSize {
                    tensor: tensor.name(),
                    expected: bytes,
                    got,
                });
            }
        }
        let room = |tensor| room(tensor).unwrap_or(0);
        let whole = self.plan.whole();
        Ok(whole
            .map(|part| export::export(&self.plan, part, room))
            .collect())
    }

    /// Binds buffers: checks them, compiles what is missing, makes bind groups and uniforms. A workspace that is not given
    /// is made. With [`Tensor::Sums`] the two halves can be recorded, too.
    ///
    /// Disjoint ranges of one buffer are fine. Ranges must not overlap where one of them is written, with one exception:
    /// diff_src may be exactly diff_dst.
    ///
    /// # Errors
    ///
    /// A buffer too small, misaligned, without the usage STORAGE, of another device or destroyed, overlapping another,
    /// missing, named twice, or given without use; memory or device lost. In a browser what the device itself finds wrong
    /// (its memory, another device's buffer) comes later, to the device's handler of uncaptured errors.
    pub fn bind(
        &self,
        gpu: &GpuContext,
        buffers: &[(Tensor, BufferRange<'_>)],
    ) -> Result<Bound, Error> {
        let mut given: Vec<(Tensor, Option<BufferRange<'_>>)> = Vec::new();
        for &(tensor, range) in buffers {
            if given.iter().any(|&(known, _)| known == tensor) {
                return Err(Error::argument(tensor.name(), "one buffer", "two"));
            }
            given.push((tensor, Some(range)));
        }
        bound::bind(gpu, &self.plan, &given)
    }

    pub(crate) fn inner(&self) -> &plan::Plan {
        &self.plan
    }
}

impl Operation {
    /// What to dispatch on an adapter of a profile. Pure: no GPU is touched.
    ///
    /// # Errors
    ///
    /// What is wrong with shape, types or options; [`Error::Limit`], [`Error::UnsupportedDType`] and [`Error::Algorithm`]
    /// for what the adapter cannot do.
    pub fn plan(&self, profile: &Profile) -> Result<Plan, Error> {
        Ok(Plan {
            operation: self.clone(),
            plan: self.planned(profile)?,
        })
    }

    /// The plan alone.
    pub(crate) fn planned(&self, profile: &Profile) -> Result<plan::Plan, Error> {
        self.check()?;
        let profile = plan::fit(profile, self.types, self.epsilon)?;
        plan::plan(&profile, &plan::Problem::new(self))
    }
}
