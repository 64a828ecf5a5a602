//! From a plan and buffers to bind groups that can be recorded again and again.

use crate::context::Held;
use crate::kernels::{Access, SHARED_REALS, Tensor, Variant};
use crate::plan::{Binding, Dispatch, Phases, Plan};
use crate::{Error, GpuContext};

/// A caller's buffer, or a part of one.
///
/// The offset must be a multiple of the device's `min_storage_buffer_offset_alignment`, and of 32.
/// Where the buffer has room for it, a range is best followed by padding up to a multiple of four
/// elements, as [`BatchNormPlan::padded_sizes`](crate::BatchNormPlan::padded_sizes) has it: it keeps its
/// bytes, and lets the kernels load four elements at a time to the end.
#[derive(Clone, Copy, Debug)]
pub struct BufferRange<'a> {
    /// The buffer, with the usage STORAGE.
    pub buffer: &'a wgpu::Buffer,
    /// Where the tensor begins, in bytes.
    pub offset: u64,
    /// Bytes of the range; by default all from the offset on.
    pub size: Option<u64>,
}

impl<'a> From<&'a wgpu::Buffer> for BufferRange<'a> {
    fn from(buffer: &'a wgpu::Buffer) -> Self {
        Self {
            buffer,
            offset: 0,
            size: None,
        }
    }
}

impl<'a> From<wgpu::BufferSlice<'a>> for BufferRange<'a> {
    fn from(slice: wgpu::BufferSlice<'a>) -> Self {
        Self {
            buffer: slice.buffer(),
            offset: slice.offset(),
            size: Some(slice.size()),
        }
    }
}

/// A plan bound to buffers: everything is checked and created, so that recording it only writes
/// commands. It can be recorded any number of times.
#[derive(Debug)]
pub struct Bound {
    steps: Held<Vec<Step>>,
    halves: Halves,
}

/// What there is of the two halves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Halves {
    /// Both are bound.
    Bound,
    /// They have no buffer `sums` to meet at.
    WithoutSums,
    /// The operator has none: layer norm's sums are taken over rows and over columns.
    None,
}

#[derive(Debug)]
struct Step {
    phases: Phases,
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    workgroups: [u32; 2],
}

/// Recording into an encoder makes a compute pass for the call. The functions whose names end with `_in` record
/// into a pass of the caller's, with the same results to the bit: for many layers in one pass, or a pass with
/// `timestamp_writes`.
impl Bound {
    /// Records the whole operator. No wgpu object but the compute pass is created, nothing is submitted.
    ///
    /// What it leaves in a bound buffer `sums` is not specified. Its results agree with those of the two
    /// halves within rounding, to the bit only where the whole is not fused into one dispatch.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        self.record_in(&mut begin_pass(encoder));
    }

    /// Records the whole operator into a compute pass, beside whatever else is in it.
    ///
    /// wgpu orders dispatches of one pass by the buffers that they share, as it orders passes: what a
    /// dispatch writes the next ones see, so that one layer may feed another and layers may share a
    /// workspace. The pass is left with a pipeline and a bind group 0 of this crate's: a dispatch of the
    /// caller's after it sets its own again.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{BatchNormBuffers, BatchNormOptions, DType, Error, GpuBatchNorm, GpuContext};
    /// use wgpu_norm::{ParamGrads, wgpu};
    ///
    /// let gpu = match GpuContext::new().await {
    ///     Ok(gpu) => gpu,
    ///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
    ///     Err(error) => return Err(error),
    /// };
    /// let device = gpu.device();
    /// let buffer = || {
    ///     device.create_buffer(&wgpu::BufferDescriptor {
    ///         label: None,
    ///         size: 48, // the largest tensor's: three samples of four channels
    ///         usage: wgpu::BufferUsages::STORAGE,
    ///         mapped_at_creation: false,
    ///     })
    /// };
    /// let options = BatchNormOptions {
    ///     param_grads: ParamGrads::Frozen,
    ///     ..BatchNormOptions::new(1e-5)
    /// };
    /// let plan = GpuBatchNorm::new(&gpu, options)?.plan(&[3, 4], DType::F32, DType::F32, false)?;
    /// let gradients = [buffer(), buffer(), buffer()];
    /// let mut layers = Vec::new();
    /// for between in gradients.windows(2) {
    ///     let (src, mean, variance) = (buffer(), buffer(), buffer());
    ///     layers.push(plan.bind(
    ///         &gpu,
    ///         &BatchNormBuffers {
    ///             src: (&src).into(),
    ///             diff_dst: (&between[0]).into(),
    ///             mean: (&mean).into(),
    ///             variance: (&variance).into(),
    ///             gamma: None,
    ///             diff_src: (&between[1]).into(), // the diff_dst of the layer before
    ///             diff_gamma: None,
    ///             diff_beta: None,
    ///             sums: None,
    ///             workspace: None,
    ///         },
    ///     )?);
    /// }
    /// let mut encoder = device.create_command_encoder(&Default::default());
    /// let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
    ///     label: Some("backward"),
    ///     timestamp_writes: None, // of the whole backward pass, where the device has them
    /// });
    /// for layer in &layers {
    ///     layer.record_in(&mut pass);
    /// }
    /// drop(pass);
    /// gpu.queue().submit([encoder.finish()]);
    /// # Ok(()) }).unwrap();
    /// ```
    pub fn record_in(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.dispatch(pass, Phases::WHOLE);
    }

    /// Records the first half: the sums, into the buffer `sums`. Batch norm alone has halves.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for layer norm.
    pub fn record_reduce(&self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        self.check_halves()?;
        self.record_reduce_in(&mut begin_pass(encoder))
    }

    /// Records the first half into a compute pass, as [`record_in`](Self::record_in) does the whole.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for layer norm.
    pub fn record_reduce_in(&self, pass: &mut wgpu::ComputePass<'_>) -> Result<(), Error> {
        self.check_halves()?;
        self.dispatch(pass, Phases::REDUCE);
        Ok(())
    }

    /// Records the second half: the gradients, from what is in `sums` by then. Batch norm alone has halves.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for layer norm.
    pub fn record_apply(&self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        self.check_halves()?;
        self.record_apply_in(&mut begin_pass(encoder))
    }

    /// Records the second half into a compute pass, as [`record_in`](Self::record_in) does the whole.
    ///
    /// # Errors
    ///
    /// [`Error::BufferPresence`] if no buffer `sums` was bound, [`Error::Argument`] for layer norm.
    pub fn record_apply_in(&self, pass: &mut wgpu::ComputePass<'_>) -> Result<(), Error> {
        self.check_halves()?;
        self.dispatch(pass, Phases::APPLY);
        Ok(())
    }

    fn check_halves(&self) -> Result<(), Error> {
        match self.halves {
            Halves::Bound => Ok(()),
            Halves::WithoutSums => Err(Error::BufferPresence {
                tensor: Tensor::Sums.name(),
                expected: true,
            }),
            Halves::None => Err(Error::Argument {
                argument: "record_reduce, record_apply",
                expected: "a bound plan of batch norm".to_owned(),
                got: "one of layer norm, which has no halves".to_owned(),
            }),
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

/// A tensor's place: the buffer, and how far kernels may reach in it.
#[derive(Clone)]
struct Place<'a> {
    tensor: Tensor,
    buffer: &'a wgpu::Buffer,
    offset: u64,
    /// The tensor's own bytes.
    bytes: u64,
    /// Bytes from the offset to the end of the buffer.
    room: u64,
}

impl Place<'_> {
    fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer
            && self.bytes > 0
            && other.bytes > 0
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }

    fn same(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.offset == other.offset && self.bytes == other.bytes
    }
}

/// Binds a plan's tensors; `given` names the caller's buffers.
pub(crate) fn bind(
    gpu: &GpuContext,
    plan: &Plan,
    given: &[(Tensor, Option<BufferRange<'_>>)],
) -> Result<Bound, Error> {
    gpu.check_alive()?;
    check_plan(gpu, plan)?;
    let mut own_workspace = gpu.held::<Option<wgpu::Buffer>>();
    if find(given, Tensor::Workspace).is_none() {
        let usage = wgpu::BufferUsages::STORAGE;
        *own_workspace = Some(gpu.create_buffer("workspace", plan.workspace_bytes, usage)?);
    }
    let places = places(gpu, plan, given, own_workspace.as_ref())?;
    check_overlaps(&places)?;
    let in_place = match (
        place(&places, Tensor::DiffSrc),
        place(&places, Tensor::DiffDst),
    ) {
        (Ok(diff_src), Ok(diff_dst)) => diff_src.same(diff_dst),
        _ => false,
    };
    let mut buffers = gpu.held();
    let uniforms = UniformBuffer::create(gpu, plan, &mut buffers)?;
    // An operator with halves takes the sums as an argument, given or not.
    let halves = match given.iter().find(|(tensor, _)| *tensor == Tensor::Sums) {
        Some((_, Some(_))) => Halves::Bound,
        Some((_, None)) => Halves::WithoutSums,
        None => Halves::None,
    };
    let recorded = match halves {
        Halves::Bound => Phases::WHOLE.and(Phases::REDUCE).and(Phases::APPLY),
        Halves::WithoutSums | Halves::None => Phases::WHOLE,
    };
    let mut steps = gpu.held::<Vec<_>>();
    for (index, &(phases, ref dispatch)) in plan.dispatches.iter().enumerate() {
        if !phases.meets(recorded) {
            continue;
        }
        let binder = Binder {
            gpu,
            plan,
            phases,
            dispatch,
            places: &places,
            in_place: in_place
                && dispatch
                    .bindings
                    .iter()
                    .any(|b| b.tensor == Tensor::DiffSrc),
        };
        steps.push(binder.step(uniforms.binding(index))?);
    }
    Ok(Bound { steps, halves })
}

/// A plan may have been made for another context, whose adapter allows more.
fn check_plan(gpu: &GpuContext, plan: &Plan) -> Result<(), Error> {
    let profile = gpu.profile();
    profile.check_dtypes(plan.data, plan.params)?;
    let exceeded = |what: String, limit, needed, available| Error::Limit {
        what,
        limit,
        needed,
        available,
    };
    for (_, dispatch) in &plan.dispatches {
        let workgroup = u64::from(dispatch.workgroup_size);
        let [width, height] = dispatch.workgroups;
        let limits = [
            (
                "max_storage_buffers_per_shader_stage",
                dispatch.bindings.len() as u64,
                profile.max_storage_buffers,
            ),
            (
                "max_compute_invocations_per_workgroup",
                workgroup,
                profile.max_invocations,
            ),
            (
                "max_compute_workgroup_storage_size",
                workgroup * SHARED_REALS * plan.data.accumulator().size(),
                profile.max_workgroup_storage,
            ),
            (
                "max_compute_workgroups_per_dimension",
                width.max(height).into(),
                profile.max_workgroups,
            ),
        ];
        let what = || "a plan of another context".to_owned();
        for (limit, needed, available) in limits {
            let available = available.into();
            if needed > available {
                return Err(exceeded(what(), limit, needed, available));
            }
        }
        // A sum over the subgroup stands for one over the workgroup.
        let subgroup = profile.subgroup_size.into();
        if dispatch.kernel.entry().subgroups && workgroup != subgroup {
            return Err(exceeded(what(), "subgroup_size", workgroup, subgroup));
        }
    }
    plan.check_bindings(profile.max_binding)
}

fn find<'a>(
    given: &[(Tensor, Option<BufferRange<'a>>)],
    tensor: Tensor,
) -> Option<BufferRange<'a>> {
    given
        .iter()
        .find(|(t, _)| *t == tensor)
        .and_then(|(_, range)| *range)
}

fn place<'p, 'a>(places: &'p [Place<'a>], tensor: Tensor) -> Result<&'p Place<'a>, Error> {
    places
        .iter()
        .find(|place| place.tensor == tensor)
        .ok_or(Error::BufferPresence {
            tensor: tensor.name(),
            expected: true,
        })
}

/// Checks every buffer against what the plan needs of it.
fn places<'a>(
    gpu: &GpuContext,
    plan: &Plan,
    given: &[(Tensor, Option<BufferRange<'a>>)],
    own_workspace: Option<&'a wgpu::Buffer>,
) -> Result<Vec<Place<'a>>, Error> {
    for (tensor, range) in given {
        let used = *tensor == Tensor::Workspace || plan.requirement(*tensor).is_some();
        if range.is_some() && !used {
            return Err(Error::BufferPresence {
                tensor: tensor.name(),
                expected: false,
            });
        }
    }
    let alignment = gpu.profile().alignment;
    let workspace_range = find(given, Tensor::Workspace).or(own_workspace.map(BufferRange::from));
    let mut places = Vec::new();
    if let Some(range) = workspace_range {
        places.push(check(
            Tensor::Workspace,
            range,
            plan.workspace_bytes,
            alignment,
        )?);
    }
    for requirement in &plan.tensors {
        let tensor = requirement.tensor;
        match find(given, tensor) {
            Some(range) => places.push(check(tensor, range, requirement.bytes(), alignment)?),
            None if tensor == Tensor::Sums => {} // for the halves alone
            None => {
                return Err(Error::BufferPresence {
                    tensor: tensor.name(),
                    expected: true,
                });
            }
        }
    }
    Ok(places)
}

fn check<'a>(
    tensor: Tensor,
    range: BufferRange<'a>,
    expected: u64,
    alignment: u64,
) -> Result<Place<'a>, Error> {
    let name = tensor.name();
    let usage = wgpu::BufferUsages::STORAGE;
    if !range.buffer.usage().contains(usage) {
        return Err(Error::BufferUsage {
            tensor: name,
            expected: usage,
            got: range.buffer.usage(),
        });
    }
    if !range.offset.is_multiple_of(alignment) {
        return Err(Error::BufferAlignment {
            tensor: name,
            offset: range.offset,
            alignment,
        });
    }
    let room = range.buffer.size().saturating_sub(range.offset);
    let got = range.size.unwrap_or(room).min(room);
    if got < expected {
        return Err(Error::BufferSize {
            tensor: name,
            expected,
            got,
        });
    }
    Ok(Place {
        tensor,
        buffer: range.buffer,
        offset: range.offset,
        bytes: expected,
        room,
    })
}

/// Nothing that is written may overlap anything else, but for diff_src exactly over diff_dst.
fn check_overlaps(places: &[Place<'_>]) -> Result<(), Error> {
    for (i, first) in places.iter().enumerate() {
        for second in places.iter().skip(i + 1) {
            let written = first.tensor.is_output() || second.tensor.is_output();
            let pair = [first.tensor, second.tensor];
            let over_diff_dst = pair == [Tensor::DiffDst, Tensor::DiffSrc] && first.same(second);
            if written && first.overlaps(second) && !over_diff_dst {
                return Err(Error::Overlap {
                    first: first.tensor.name(),
                    second: second.tensor.name(),
                });
            }
        }
    }
    Ok(())
}

/// The uniforms of all dispatches, one after another.
struct UniformBuffer {
    buffer: wgpu::Buffer,
    places: Vec<(u64, u64)>,
}

impl UniformBuffer {
    /// `kept` holds the buffer too, and lets go of it last.
    fn create(gpu: &GpuContext, plan: &Plan, kept: &mut Vec<wgpu::Buffer>) -> Result<Self, Error> {
        let alignment = gpu
            .device()
            .limits()
            .min_uniform_buffer_offset_alignment
            .max(16) as usize;
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for (_, dispatch) in &plan.dispatches {
            let uniforms = dispatch.uniforms.bytes(plan.data.accumulator());
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
            places.push((bytes.len() as u64, uniforms.len() as u64));
            bytes.extend(uniforms);
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let buffer = gpu.create_buffer("uniforms", bytes.len() as u64, usage)?;
        kept.push(buffer.clone());
        gpu.write_buffer("uniforms", &buffer, &bytes)?;
        Ok(Self { buffer, places })
    }

    fn binding(&self, index: usize) -> wgpu::BindingResource<'_> {
        let (offset, size) = self.places.get(index).copied().unwrap_or_default();
        buffer_binding(&self.buffer, offset, size)
    }
}

fn buffer_binding(buffer: &wgpu::Buffer, offset: u64, size: u64) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding {
        buffer,
        offset,
        size: wgpu::BufferSize::new(size),
    })
}

/// Makes one dispatch's step.
struct Binder<'a> {
    gpu: &'a GpuContext,
    plan: &'a Plan,
    phases: Phases,
    dispatch: &'a Dispatch,
    places: &'a [Place<'a>],
    in_place: bool,
}

impl Binder<'_> {
    fn step(&self, uniforms: wgpu::BindingResource<'_>) -> Result<Step, Error> {
        let mut bound = Vec::new();
        let mut exact = Vec::new();
        for binding in &self.dispatch.bindings {
            if self.in_place && binding.tensor == Tensor::DiffSrc {
                continue;
            }
            let place = place(self.places, binding.tensor)?;
            if binding.bytes.end > place.room {
                exact.push(binding.tensor);
            }
            bound.push((binding, place));
        }
        let mut variant = Variant {
            kernel: self.dispatch.kernel,
            data: self.plan.data,
            params: self.plan.params,
            bound: bound.iter().map(|(binding, _)| binding.tensor).collect(),
            in_place: self.in_place,
            pooled: false,
            // A plan may have been made for another context, whose adapter has longer words.
            access: match self.plan.word_bits {
                64 if self.gpu.profile().int64 => Access::LongWords,
                _ => Access::Quads,
            },
            exact,
            workgroup_size: self.dispatch.workgroup_size,
            sizes: self.dispatch.sizes.clone(),
            enabled: self.dispatch.enabled.clone(),
        };
        let written: Vec<_> = bound
            .iter()
            .filter(|(binding, _)| variant.writes(binding.tensor))
            .map(|(_, place)| place.buffer)
            .collect();
        variant.pooled = bound.iter().any(|(binding, place)| {
            !variant.writes(binding.tensor) && written.contains(&place.buffer)
        });
        let pipeline = self.gpu.pipeline(&variant.normalized())?;

        let mut entries = vec![wgpu::BindGroupEntry {
            binding: 0,
            resource: uniforms,
        }];
        for (index, (binding, place)) in bound.iter().enumerate() {
            let end = binding.bytes.end.min(place.room / 4 * 4);
            entries.push(wgpu::BindGroupEntry {
                binding: index as u32 + 1,
                resource: buffer_binding(
                    place.buffer,
                    place.offset + binding.bytes.start,
                    end.saturating_sub(binding.bytes.start),
                ),
            });
        }
        let device = self.gpu.device();
        let name = self.dispatch.kernel.entry().name;
        let bind_group = self
            .gpu
            .scoped(name, || {
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(name),
                    layout: &pipeline.layout,
                    entries: &entries,
                })
            })
            .map_err(|error| self.blame(error, &bound))?;
        Ok(Step {
            phases: self.phases,
            pipeline: pipeline.pipeline,
            bind_group,
            workgroups: self.dispatch.workgroups,
        })
    }

    /// Finds the buffer that wgpu refuses: everything that we know to ask of one is right by now, so
    /// it belongs to another device or is destroyed.
    fn blame(&self, error: Error, bound: &[(&Binding, &Place<'_>)]) -> Error {
        if !matches!(error, Error::Gpu { .. }) {
            return error;
        }
        let device = self.gpu.device();
        for (_, place) in bound {
            let probe = self.gpu.scoped("probe", || {
                let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: None,
                    entries: &[wgpu::BindGroupLayoutEntry {
                        binding: 0,
                        visibility: wgpu::ShaderStages::COMPUTE,
                        ty: wgpu::BindingType::Buffer {
                            ty: wgpu::BufferBindingType::Storage { read_only: true },
                            has_dynamic_offset: false,
                            min_binding_size: None,
                        },
                        count: None,
                    }],
                });
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout: &layout,
                    entries: &[wgpu::BindGroupEntry {
                        binding: 0,
                        resource: buffer_binding(place.buffer, place.offset, 4),
                    }],
                })
            });
            if let Err(Error::Gpu { message, .. }) = probe {
                return Error::ForeignBuffer {
                    tensor: place.tensor.name(),
                    message,
                };
            }
        }
        error
    }
}
