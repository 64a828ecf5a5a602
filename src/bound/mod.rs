//! Binds a plan to buffers: bind groups that can be recorded again and again.

mod ranges;
mod steps;

pub use ranges::BufferRange;

use crate::context::{GpuContext, Held};
use crate::error::Error;
use crate::plan::{Phases, Plan};
use crate::tensor::Tensor;
use ranges::{BoundRange, BoundRanges, Given, find};
use steps::{Binder, Step, UniformBuffer, probe};

/// A plan bound to buffers. Everything is checked and created, so recording only writes commands. It can be recorded
/// any number of times.
#[derive(Debug)]
#[must_use = "nothing is computed until it is recorded and submitted"]
pub struct Bound {
    steps: Held<Vec<Step>>,
    halves: Halves,
}

/// Whether the two halves can be recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Halves {
    /// Both are bound.
    Bound,
    /// They are not bound: there is no buffer `sums` between them.
    WithoutSums,
    /// The operation has no halves: for example, layer and RMS norm's sums are taken over rows and over columns.
    None,
}

/// Recording into an encoder begins a compute pass for each call. The functions whose names end with `_in` record into
/// the caller's pass instead, with the same results to the bit. Use them for many layers in one pass, or for a pass
/// with `timestamp_writes`.
impl Bound {
    /// Records the whole operation. It creates no wgpu object except the compute pass, and submits nothing.
    ///
    /// The contents that it leaves in a bound buffer [`Tensor::Sums`] are not specified. Its results agree with those
    /// of the two halves within rounding, and to the bit only if the whole is not fused into one dispatch.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        self.record_in(&mut begin_pass(encoder));
    }

    /// Records the whole operation into a compute pass, beside whatever else is in it.
    ///
    /// wgpu orders the dispatches of one pass by the buffers that they share, as it orders passes. So the next
    /// dispatches see what a dispatch writes, one layer may feed another, and layers may share a workspace. The pass is
    /// left with a pipeline and a bind group 0 of this crate: a later dispatch of the caller must set its own again.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Backward, DType, DataFormat, Error, GpuContext, Norm, Operation, Tensor, wgpu};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let buffer = || {
    ///     gpu.device().create_buffer(&wgpu::BufferDescriptor {
    ///         label: None,
    ///         size: 48, // the largest tensor's: three samples of four channels
    ///         usage: wgpu::BufferUsages::STORAGE,
    ///         mapped_at_creation: false,
    ///     })
    /// };
    /// let pass = Backward::default().with_param_grads(false);
    /// let operation = Operation::new(Norm::batch(DataFormat::Nxc), pass, &[3, 4], DType::F32);
    /// let plan = operation.with_params(false, false).plan(gpu.profile())?;
    /// let gradients = [buffer(), buffer(), buffer()];
    /// let mut layers = Vec::new();
    /// for between in gradients.windows(2) {
    ///     let (src, mean, variance) = (buffer(), buffer(), buffer());
    ///     let buffers = [
    ///         (Tensor::Src, (&src).into()),
    ///         (Tensor::DiffDst, (&between[0]).into()),
    ///         (Tensor::Mean, (&mean).into()),
    ///         (Tensor::Variance, (&variance).into()),
    ///         (Tensor::DiffSrc, (&between[1]).into()), // the next layer's diff_dst
    ///     ];
    ///     layers.push(plan.bind(&gpu, &buffers)?);
    /// }
    /// let mut encoder = gpu.device().create_command_encoder(&Default::default());
    /// let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
    ///     label: Some("backward"),
    ///     timestamp_writes: None, // of the whole backward pass, where the device has them
    /// });
    /// for layer in &layers {
    ///     layer.record_in(&mut pass);
    /// }
    /// drop(pass);
    /// gpu.queue().submit([encoder.finish()]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    pub fn record_in(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.dispatch(pass, Phases::WHOLE);
    }

    /// Records the first half. A gradient writes the sums, and a forward pass the statistics, of this device's part of
    /// the batch into its range of the buffer [`Tensor::Sums`]. Only batch norm has halves;
    /// [`Plan::sums`](crate::Plan::sums) describes the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for a plan without halves.
    pub fn record_reduce(&self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        self.check_halves()?;
        self.record_reduce_in(&mut begin_pass(encoder))
    }

    /// Records the first half into a compute pass, as [`record_in`](Self::record_in) does the whole.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for a plan without halves.
    pub fn record_reduce_in(&self, pass: &mut wgpu::ComputePass<'_>) -> Result<(), Error> {
        self.check_halves()?;
        self.dispatch(pass, Phases::REDUCE);
        Ok(())
    }

    /// Records the second half: the results, from the contents of [`Tensor::Sums`]. diff_gamma, diff_beta and the
    /// statistics are those of the whole batch on every device: do not add them up again.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for a plan without halves.
    pub fn record_apply(&self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        self.check_halves()?;
        self.record_apply_in(&mut begin_pass(encoder))
    }

    /// Records the second half into a compute pass, as [`record_in`](Self::record_in) does the whole.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for a plan without halves.
    pub fn record_apply_in(&self, pass: &mut wgpu::ComputePass<'_>) -> Result<(), Error> {
        self.check_halves()?;
        self.dispatch(pass, Phases::APPLY);
        Ok(())
    }

    fn check_halves(&self) -> Result<(), Error> {
        match self.halves {
            Halves::Bound => Ok(()),
            Halves::WithoutSums => Err(Error::no_buffer(Tensor::Sums)),
            Halves::None => Err(Error::argument(
                "record_reduce, record_apply",
                "a bound plan with halves: of batch norm in training, or of its gradient",
                "one without halves (Plan::sums is None): of layer norm, RMS norm, group norm or instance norm, of \
                 inference, or with more channels than there is room for sums",
            )),
        }
    }

    fn dispatch(&self, pass: &mut wgpu::ComputePass<'_>, phase: Phases) {
        for step in self.steps.iter().filter(|step| step.phases.meets(phase)) {
            pass.set_pipeline(&step.pipeline);
            pass.set_bind_group(0, &step.bind_group, &[]);
            let [width, height] = step.workgroups;
            pass.dispatch_workgroups(width, height, 1);
        }
    }
}

fn begin_pass(encoder: &mut wgpu::CommandEncoder) -> wgpu::ComputePass<'_> {
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
        label: Some("wgpu-norm"),
        timestamp_writes: None,
    })
}

/// Binds a plan's tensors; `given` names the caller's buffers.
pub(crate) fn bind(gpu: &GpuContext, plan: &Plan, given: &Given<'_>) -> Result<Bound, Error> {
    gpu.check_alive()?;
    check_plan(gpu, plan)?;
    let halves = match (plan.requirement(Tensor::Sums), find(given, Tensor::Sums)) {
        (None, _) => Halves::None,
        (Some(_), None) => Halves::WithoutSums,
        (Some(_), Some(_)) => Halves::Bound,
    };
    let (recorded, workspace_bytes) = match halves {
        Halves::Bound => (
            Phases::WHOLE.with(Phases::REDUCE).with(Phases::APPLY),
            plan.halves_workspace_bytes,
        ),
        Halves::WithoutSums | Halves::None => (Phases::WHOLE, plan.workspace_bytes),
    };
    let mut own_workspace = gpu.held::<Option<wgpu::Buffer>>();
    if find(given, Tensor::Workspace).is_none() && workspace_bytes > 0 {
        let usage = wgpu::BufferUsages::STORAGE;
        *own_workspace = Some(gpu.create_buffer("workspace", workspace_bytes, usage)?);
    }
    let workspace = (own_workspace.as_ref(), workspace_bytes);
    let ranges = BoundRanges::new(gpu, plan, given, workspace)?;
    let mut buffers = gpu.held();
    let uniforms = UniformBuffer::create(gpu, plan, &mut buffers)?;
    let mut steps = gpu.held::<Vec<_>>();
    let mut bound = Vec::new();
    let binder = Binder {
        gpu,
        plan,
        ranges: &ranges,
    };
    for (index, &(phases, ref dispatch)) in plan.dispatches.iter().enumerate() {
        if !phases.meets(recorded) {
            continue;
        }
        for binding in &dispatch.bindings {
            if !bound.contains(&binding.tensor) {
                bound.push(binding.tensor);
            }
        }
        steps.push(binder.step(phases, dispatch, uniforms.binding(index))?);
    }
    // wgpu has checked the others.
    let unbound = ranges.0.iter();
    for range in unbound.filter(|range| !bound.contains(&range.tensor)) {
        probe(gpu, range)?;
    }
    Ok(Bound { steps, halves })
}

/// Binds dispatches of a plan over pieces of its tensors, which lie in buffers of this crate. The uniforms are made
/// once.
#[derive(Debug)]
pub(crate) struct PieceBinder {
    uniforms: UniformBuffer,
    /// Drops the buffer last.
    _kept: Held<Vec<wgpu::Buffer>>,
}

impl PieceBinder {
    pub fn new(gpu: &GpuContext, plan: &Plan) -> Result<Self, Error> {
        gpu.check_alive()?;
        check_plan(gpu, plan)?;
        let mut kept = gpu.held();
        let uniforms = UniformBuffer::create(gpu, plan, &mut kept)?;
        Ok(Self {
            uniforms,
            _kept: kept,
        })
    }

    /// Binds dispatches of the whole operation, given by their indices. Each buffer holds a tensor from the given byte
    /// on.
    pub fn bind(
        &self,
        gpu: &GpuContext,
        plan: &Plan,
        dispatches: &[usize],
        buffers: &[(Tensor, &wgpu::Buffer, u64)],
    ) -> Result<Bound, Error> {
        let ranges = buffers.iter();
        let ranges =
            ranges.map(|&(tensor, buffer, origin)| BoundRange::piece(tensor, buffer, origin));
        // Buffers of this crate, which need no checks.
        let binder = Binder {
            gpu,
            plan,
            ranges: &BoundRanges(ranges.collect()),
        };
        let mut steps = gpu.held::<Vec<_>>();
        for &index in dispatches {
            let Some(&(phases, ref dispatch)) = plan.dispatches.get(index) else {
                continue;
            };
            steps.push(binder.step(phases, dispatch, self.uniforms.binding(index))?);
        }
        Ok(Bound {
            steps,
            halves: Halves::None,
        })
    }
}

/// Checks that a plan fits this context: it may have been made for another one, whose adapter allows more.
fn check_plan(gpu: &GpuContext, plan: &Plan) -> Result<(), Error> {
    let what = "a plan made with a profile other than gpu.profile()";
    let profile = gpu.profile();
    profile.check_dtypes(plan.types)?;
    for (_, dispatch) in &plan.dispatches {
        let workgroup = u64::from(dispatch.workgroup_size);
        let [width, height] = dispatch.workgroups;
        Error::check_limit(
            what,
            "max_storage_buffers_per_shader_stage",
            dispatch.bindings.len() as u64,
            profile.max_storage_buffers,
        )?;
        Error::check_limit(
            what,
            "max_compute_invocations_per_workgroup",
            workgroup,
            profile.max_invocations,
        )?;
        Error::check_limit(
            what,
            "max_compute_workgroup_storage_size",
            workgroup * dispatch.body.shared_reals() * plan.types.data.accumulator().size(),
            profile.max_workgroup_storage,
        )?;
        Error::check_limit(
            what,
            "max_compute_workgroups_per_dimension",
            width.max(height),
            profile.max_workgroups,
        )?;
    }
    plan.check_bindings(profile.max_binding)
}
