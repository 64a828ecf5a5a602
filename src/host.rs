//! Runs a plan on host memory: check, upload, record, read back.

use crate::bound::{self, Bound, BufferRange};
use crate::context::{GpuContext, Held, Transfers, Watch};
use crate::element::DType;
use crate::error::Error;
use crate::operation::Operation;
use crate::plan::Plan;
use crate::tensor::{Access, Tensor, TensorUse};
use crate::{geometry, memory};

/// The slice given for a tensor; an error if there are two.
fn find_slice<'s>(
    mut named: impl Iterator<Item = (Tensor, &'s [u8])>,
    tensor: Tensor,
) -> Result<Option<&'s [u8]>, Error> {
    let found = named.find(|(name, _)| *name == tensor);
    if named.any(|(name, _)| name == tensor) {
        Err(Error::argument(tensor.name(), "one slice", "two"))
    } else {
        Ok(found.map(|(_, bytes)| bytes))
    }
}

/// An error if a slice's length is not that of its tensor.
fn check_bytes(used: &TensorUse, bytes: &[u8]) -> Result<(), Error> {
    let size = used.element_size();
    if (bytes.len() as u64).is_multiple_of(size) {
        let got = bytes.len() as u64 / size;
        let got = usize::try_from(got).unwrap_or(usize::MAX);
        geometry::check_length(used.tensor.name(), used.elements(), got)
    } else {
        Err(Error::argument(
            used.tensor.name(),
            format!("{} elements of {size} bytes", used.elements()),
            format!("{} bytes", bytes.len()),
        ))
    }
}

impl Operation {
    /// Checks the arguments, uploads the inputs, runs, and reads the results into the given slices, with no copy beside
    /// the transfers. Running statistics, which are read and written, belong in `outputs`; their contents are read
    /// first. A result without a slice is not read back.
    ///
    /// Slices hold elements in storage order, in the machine's byte order.
    ///
    /// The first poll uploads, and compiles the kernels that no earlier call has needed, which can take seconds on a
    /// software driver. The wait for the GPU that follows does not block the executor. The last poll copies the results
    /// out.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{DType, Error, Forward, GpuContext, Norm, Operation, Tensor, bytemuck};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let norm = Norm::rms(-1);
    /// let operation = Operation::new(norm, Forward::default(), &[2, 2], DType::F32).with_params(false, false);
    /// let src = [3.0_f32, 3.0, 4.0, -4.0];
    /// let mut dst = [0.0_f32; 4];
    /// let inputs = [(Tensor::Src, bytemuck::cast_slice(&src))];
    /// let mut outputs = [(Tensor::Dst, bytemuck::cast_slice_mut(&mut dst))];
    /// operation.run_into(&gpu, &inputs, &mut outputs).await?;
    /// assert!((dst[0] - 1.0).abs() < 1e-5 && (dst[3] + 1.0).abs() < 1e-5);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan); slices that are missing, given twice, not used or of the wrong length;
    /// variance + epsilon that is infinite or not above 0, with its channel, group or row; out of memory; device lost.
    /// All arguments are checked before anything is uploaded.
    pub async fn run_into(
        &self,
        gpu: &GpuContext,
        inputs: &[(Tensor, &[u8])],
        outputs: &mut [(Tensor, &mut [u8])],
    ) -> Result<(), Error> {
        let plan = &self.planned(gpu.profile())?;
        let in_place = self.check_slices(&self.tensors()?, inputs, outputs)?;
        let inputs = inputs.iter().map(|(tensor, bytes)| (*tensor, *bytes));
        let in_place = in_place.iter().map(|(tensor, bytes)| (*tensor, &**bytes));
        let inputs: Vec<_> = inputs.chain(in_place).collect();
        let watch = watch(gpu, plan, plan.workspace_bytes);
        let whole = OnDevice::new(gpu, plan, false)?;
        let wanted = |tensor| outputs.iter().any(|(name, _)| *name == tensor);
        let transfers = Transfers {
            uploads: whole.uploads(&inputs),
            downloads: whole.downloads(wanted),
        };
        let record = |encoder: &mut wgpu::CommandEncoder| whole.bound.record(encoder);
        gpu.transfer(watch, &transfers, record, |tensor, bytes| {
            let mut outputs = outputs.iter_mut();
            if let Some((_, to)) = outputs.find(|(name, _)| *name == tensor)
                && to.len() == bytes.len()
            {
                to.copy_from_slice(bytes);
            }
            Ok(())
        })
        .await
    }

    /// An error if slices are missing, given twice, not used or of the wrong length, or if given statistics are
    /// invalid. Returns copies of the tensors that are read before they are written: a few numbers for each channel.
    pub(crate) fn check_slices(
        &self,
        tensors: &[TensorUse],
        inputs: &[(Tensor, &[u8])],
        outputs: &[(Tensor, &mut [u8])],
    ) -> Result<Vec<(Tensor, Vec<u8>)>, Error> {
        let named = inputs.iter().map(|(tensor, _)| *tensor);
        let mut named = named.chain(outputs.iter().map(|(tensor, _)| *tensor));
        if let Some(vain) = named.find(|name| tensors.iter().all(|used| used.tensor != *name)) {
            return Err(Error::argument(vain.name(), "none", "a slice"));
        }
        let mut in_place: Vec<(Tensor, Vec<u8>)> = Vec::new();
        for used in tensors {
            let input = find_slice(inputs.iter().map(|(t, bytes)| (*t, *bytes)), used.tensor)?;
            let output = find_slice(outputs.iter().map(|(t, bytes)| (*t, &**bytes)), used.tensor)?;
            let (read, written) = ("a slice among the inputs", "a slice among the outputs");
            let (slice, other, role, misplaced) = match used.access {
                Access::In => (input, output, read, written),
                Access::Out | Access::InOut => (output, input, written, read),
            };
            match (slice, other) {
                (_, Some(_)) => {
                    return Err(Error::argument(used.tensor.name(), role, misplaced));
                }
                (None, None) if used.access.reads() => {
                    return Err(Error::argument(used.tensor.name(), role, "none"));
                }
                _ => {}
            }
            let Some(bytes) = slice else { continue };
            check_bytes(used, bytes).map_err(|error| self.explained(error, used.tensor))?;
            match used.access {
                Access::In => self.check_statistic(used, bytes)?,
                Access::InOut => {
                    let copied = memory::collect("running statistics", bytes.iter().copied())?;
                    in_place.push((used.tensor, copied));
                }
                Access::Out => {}
            }
        }
        Ok(in_place)
    }

    /// An error unless a given variance (or mean of squares) + epsilon, as the kernels add them, is above 0 and finite
    /// in every channel (or row). NaN passes: it stays in its channel. With an infinite variance gradients would be 0,
    /// as if there were nothing to learn.
    fn check_statistic(&self, used: &TensorUse, bytes: &[u8]) -> Result<(), Error> {
        if !used.tensor.takes_epsilon() {
            return Ok(());
        }
        let (dtype, epsilon) = (self.types.statistics, self.epsilon);
        for (channel, variance) in dtype.values(bytes).enumerate() {
            let sum = match dtype.accumulator() {
                DType::F64 => variance + epsilon,
                _ => f64::from(variance as f32 + epsilon as f32),
            };
            if sum <= 0.0 || sum.is_infinite() {
                return Err(Error::Variance {
                    argument: used.tensor.name(),
                    group: self.norm.unit(),
                    channel,
                    variance,
                    epsilon,
                });
            }
        }
        Ok(())
    }
}

/// A plan with two halves, bound to buffers of its own.
pub(crate) struct Halves<'a>(OnDevice<'a>);

impl<'a> Halves<'a> {
    /// Runs the first half on checked inputs, and passes the sums to `take`.
    pub async fn first(
        gpu: &'a GpuContext,
        plan: &'a Plan,
        inputs: &[(Tensor, &[u8])],
        take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let watch = watch(gpu, plan, plan.halves_workspace_bytes);
        let whole = OnDevice::new(gpu, plan, true)?;
        let transfers = Transfers {
            uploads: whole.uploads(inputs),
            downloads: whole.downloads(|tensor| tensor == Tensor::Sums),
        };
        let mut recorded = Ok(());
        let record =
            |encoder: &mut wgpu::CommandEncoder| recorded = whole.bound.record_reduce(encoder);
        gpu.transfer(watch, &transfers, record, take).await?;
        recorded?;
        Ok(Self(whole))
    }

    /// Runs the second half with these sums, and passes the tensors of src's shape that it writes to `take`.
    pub async fn second(
        &self,
        sums: &[u8],
        take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self(whole) = self;
        let buffer = whole.buffer_of(Tensor::Sums);
        let transfers = Transfers {
            uploads: buffer
                .map(|b| (Tensor::Sums, b, sums))
                .into_iter()
                .collect(),
            downloads: whole.downloads(|tensor| tensor.is_data() || tensor == Tensor::Mask),
        };
        let mut recorded = Ok(());
        let record =
            |encoder: &mut wgpu::CommandEncoder| recorded = whole.bound.record_apply(encoder);
        let watch = watch(whole.gpu, whole.plan, whole.plan.halves_workspace_bytes);
        let gpu = whole.gpu;
        gpu.transfer(watch, &transfers, record, take).await?;
        recorded
    }
}

/// A plan, bound to buffers of its own.
struct OnDevice<'a> {
    gpu: &'a GpuContext,
    plan: &'a Plan,
    bound: Bound,
    buffers: Held<Vec<(Tensor, wgpu::Buffer)>>,
}

impl<'a> OnDevice<'a> {
    /// Binds a plan, with the buffer `sums` if the two halves are to be recorded.
    fn new(gpu: &'a GpuContext, plan: &'a Plan, with_sums: bool) -> Result<Self, Error> {
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let mut buffers = gpu.held::<Vec<(Tensor, wgpu::Buffer)>>();
        for requirement in &plan.tensors {
            let tensor = requirement.tensor;
            if tensor == Tensor::DiffSrc || (tensor == Tensor::Sums && !with_sums) {
                continue;
            }
            let buffer = gpu.create_buffer(tensor.name(), requirement.padded_bytes(), usage)?;
            buffers.push((tensor, buffer));
        }
        let given = plan.tensors.iter().filter_map(|r| {
            let buffer = find(&buffers, r.tensor)?;
            Some((r.tensor, BufferRange::from(buffer)))
        });
        let bound = bound::bind(gpu, plan, &given.collect::<Vec<_>>())?;
        Ok(Self {
            gpu,
            plan,
            bound,
            buffers,
        })
    }

    fn buffer_of(&self, tensor: Tensor) -> Option<&wgpu::Buffer> {
        find(&self.buffers, tensor)
    }

    fn uploads<'i>(
        &'i self,
        inputs: &[(Tensor, &'i [u8])],
    ) -> Vec<(Tensor, &'i wgpu::Buffer, &'i [u8])> {
        let uploads = inputs.iter();
        let uploads =
            uploads.filter_map(|(tensor, bytes)| Some((*tensor, self.buffer_of(*tensor)?, *bytes)));
        uploads.collect()
    }

    fn downloads(&self, wanted: impl Fn(Tensor) -> bool) -> Vec<(Tensor, &wgpu::Buffer, u64)> {
        let outputs = self.plan.tensors.iter();
        let outputs = outputs.filter(|r| self.plan.writes(r.tensor) && wanted(r.tensor));
        outputs
            .filter_map(|requirement| {
                let bytes = requirement.elements * requirement.dtype.size();
                Some((
                    requirement.tensor,
                    self.buffer_of(requirement.tensor)?,
                    bytes,
                ))
            })
            .collect()
    }
}

/// Watches for wgpu's errors about a plan's buffers.
fn watch(gpu: &GpuContext, plan: &Plan, workspace_bytes: u64) -> Watch {
    let tensors = plan.tensors.iter().map(|r| r.padded_bytes());
    gpu.watch(tensors.fold(workspace_bytes, u64::saturating_add))
}

/// The buffer that holds a tensor. diff_src shares that of diff_dst.
fn find(buffers: &[(Tensor, wgpu::Buffer)], tensor: Tensor) -> Option<&wgpu::Buffer> {
    let stored = match tensor {
        Tensor::DiffSrc => Tensor::DiffDst,
        other => other,
    };
    let found = buffers.iter().find(|(known, _)| *known == stored);
    found.map(|(_, buffer)| buffer)
}
