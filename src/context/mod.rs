//! A device to run on: chosen by this crate or given by the caller.

mod adapter;
mod f16_proofs;
mod gl_lock;
mod mapped;
mod pipelines;
mod poller;
mod readback;
#[cfg(test)]
pub(crate) mod refused_step;
mod scope;

pub use adapter::{ContextOptions, adapters, unfit};
pub(crate) use gl_lock::Held;
pub(crate) use pipelines::Pipeline;
pub(crate) use readback::Transfers;
pub(crate) use scope::Watch;

use crate::element::DType;
use crate::error::Error;
use crate::f16_encoder::F16Encoder;
use crate::kernels::Variant;
use crate::memory;
use crate::profile::Profile;
use crate::tensor::Tensor;
use pipelines::Pipelines;
use poller::Poller;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU to run on: a device, its queue, and the pipelines compiled for it so far.
///
/// Cloning is cheap and shares everything. A context may be used from several threads at once and from any executor.
/// Dropping the last clone waits for the unfinished GPU work of calls whose futures were dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), wgpu_norm::Error> {
/// let gpu = wgpu_norm::GpuContext::new().await?;
/// println!("{}", gpu.adapter_info().name);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GpuContext {
    inner: Arc<Inner>,
    profile: Arc<Profile>,
}

#[derive(Debug)]
struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    shader_checks: bool,
    pipelines: Pipelines,
    poller: Poller,
    lost: LostFlag,
    /// Dropped last, so that a device of this crate's own is freed under the lock of GL.
    _owners: Held<Option<(wgpu::Device, wgpu::Queue)>>,
}

/// The reason of the device's loss, set by its callback if this crate made the device.
type LostFlag = Arc<Mutex<Option<String>>>;

/// How a context uses a device. [`GpuContext::from_device`] says what that means for the callbacks of a caller's
/// device.
///
/// ```
/// use wgpu_norm::{ContextOptions, DeviceOptions};
///
/// let device = DeviceOptions::default().shader_checks(true);
/// let options = ContextOptions::default().device(device);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceOptions {
    shader_checks: bool,
    profile: Option<Profile>,
    pipeline_cache: Option<Vec<u8>>,
}

impl DeviceOptions {
    /// Sets whether kernels are compiled with wgpu's bounds checks, although they do not need them.
    #[must_use]
    pub fn shader_checks(self, shader_checks: bool) -> Self {
        Self {
            shader_checks,
            ..self
        }
    }

    /// Sets the profile that replaces the device's own; `WGPU_NORM_PROFILE` is then ignored. Limits above those of the
    /// device are lowered to them, and sizes of the tuning that are out of range are moved into it. f16 is rounded as
    /// the profile says: by integers, unless [`GpuContext::probe_f16`] was asked.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self {
            profile: Some(profile),
            ..self
        }
    }

    /// Keeps what the driver compiles in a cache that begins with these bytes, which [`GpuContext::pipeline_cache`]
    /// returned in an earlier run, or with none. Where a driver keeps no cache of its own, pipelines are then not
    /// compiled anew in each run. Ignored if the device lacks `PIPELINE_CACHE`, which wgpu has on Vulkan only, and
    /// bytes of another adapter, driver or version of wgpu are ignored.
    ///
    /// # Safety
    ///
    /// The bytes must be empty or those of [`GpuContext::pipeline_cache`], unchanged: wgpu checks whose they are, but
    /// the driver trusts their contents. Keep them where nobody else can write, with a checksum.
    #[must_use]
    pub unsafe fn pipeline_cache(self, bytes: Vec<u8>) -> Self {
        Self {
            pipeline_cache: Some(bytes),
            ..self
        }
    }
}

/// A profile lowered to what the device allows and has proven.
fn fit(profile: Profile, device: &wgpu::Device) -> Profile {
    let f16_encoder = f16_proofs::proven(device, profile.f16_encoder);
    Profile {
        f16_encoder,
        ..profile.within(device)
    }
}

impl GpuContext {
    /// The features of wgpu that this crate uses if a device has them: f64, which f64 data need; for speed, sums over
    /// subgroups, conversions to f16, and 64-bit words, with which software drivers move data; and the pipeline cache.
    /// A device of yours may be opened with `adapter.features() & GpuContext::USEFUL_FEATURES`, or with none: f16 and
    /// bf16 data need no feature, since kernels read and write words of 32 bits.
    ///
    /// The device's limits matter too: `adapter.limits()` are best, `Limits::default()` allow all operations in
    /// workgroups of 256, and the four storage buffers of `Limits::downlevel_defaults()` rule out the fused kernels.
    pub const USEFUL_FEATURES: wgpu::Features = wgpu::Features::SHADER_F64
        .union(wgpu::Features::SHADER_INT64)
        .union(wgpu::Features::SUBGROUP)
        .union(wgpu::Features::SHADER_F16)
        .union(wgpu::Features::PIPELINE_CACHE);

    /// A context on the best adapter: a discrete GPU, else an integrated one, else a software driver (which is logged
    /// as a warning).
    ///
    /// The environment variables `WGPU_BACKEND` (`vulkan`, `metal`, `dx12`, `gl`) and `WGPU_ADAPTER_NAME` (a part of
    /// the name, in upper or lower case) narrow the choice. `WGPU_NORM_PROFILE` overrides the adapter's
    /// [`Tuning`](crate::Tuning) in part or whole, for instance `workgroup=128,busy_workgroups=512`.
    ///
    /// # Errors
    ///
    /// [`Error::NoAdapter`], [`Error::RequestDevice`]; [`Error::Argument`] and [`Error::Tuning`] for an invalid
    /// variable.
    pub async fn new() -> Result<Self, Error> {
        Self::with_options(ContextOptions::default()).await
    }

    /// A context on an adapter that fits `options`.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub async fn with_options(options: ContextOptions) -> Result<Self, Error> {
        let adapter = options.adapter().await?;
        Self::from_adapter(&adapter, options.device).await
    }

    /// A context on the given adapter, with a device of its own.
    ///
    /// # Errors
    ///
    /// [`Error::NoAdapter`] if the adapter cannot run the kernels, [`Error::RequestDevice`], [`Error::Tuning`] if
    /// `WGPU_NORM_PROFILE` is invalid.
    pub async fn from_adapter(
        adapter: &wgpu::Adapter,
        options: DeviceOptions,
    ) -> Result<Self, Error> {
        let own = options.profile.is_none();
        let mut profile = match options.profile {
            Some(profile) => profile,
            None => Profile::for_adapter(adapter).with_env()?,
        };
        let software = adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        // Software drivers calculate with integers as fast.
        let probes = if own {
            profile.f16 && !software
        } else {
            profile.f16_encoder != F16Encoder::Integers
        };
        let (device, queue) = adapter::open(adapter).await?;
        let options = DeviceOptions {
            profile: Some(profile.clone()),
            ..options
        };
        let lost = LostFlag::default();
        let flag = Arc::downgrade(&lost);
        device.set_device_lost_callback(move |reason, message| {
            if let Some(flag) = flag.upgrade() {
                let reason = if message.is_empty() {
                    format!("{reason:?}")
                } else {
                    format!("{reason:?}: {message}")
                };
                *flag.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            }
        });
        device.on_uncaptured_error(Arc::new(|error| log::error!("uncaptured: {error}")));
        let gpu = Self::assemble(device, queue, options, lost);
        if !probes {
            return Ok(gpu);
        }
        let right = gpu.probe_f16().await;
        if own {
            profile.f16_encoder = right;
        }
        Ok(gpu.with_profile(profile))
    }

    /// A context on a caller's device, whose callbacks are left alone. The device must allow four storage buffers in a
    /// shader stage, as wgpu's `Limits::default()` and `Limits::downlevel_defaults()` do; otherwise planning fails with
    /// [`Error::Limit`]. Eight allow the fused kernels, and [`USEFUL_FEATURES`](Self::USEFUL_FEATURES) allow faster
    /// ones. `WGPU_NORM_PROFILE` is ignored; [`Profile::with_env`] makes a profile that follows it. f16 is rounded by
    /// integers until [`probe_f16`](Self::probe_f16) is asked.
    ///
    /// Buffers that are bound later must belong to this very device. A buffer of another device is an error, but wgpu
    /// cannot tell apart the devices of two instances: the caller must not mix them.
    ///
    /// wgpu runs the callbacks of a device (`map_async`, `on_submitted_work_done`, the device's loss) whenever the
    /// device is polled or submitted to. So your callbacks may run inside this crate's calls and on its polling thread.
    /// A panic inside a call unwinds through that call; a panic on the polling thread makes the waiting calls fail with
    /// [`Error::Gpu`]. A callback must not wait for a call of this crate: that deadlocks.
    ///
    /// The device may be destroyed at any time: calls in flight then end with [`Error::DeviceLost`]. Without this
    /// crate's feature `native` it must not be destroyed during a call, since wgpu may free memory that is being read
    /// back.
    pub fn from_device(device: wgpu::Device, queue: wgpu::Queue, options: DeviceOptions) -> Self {
        Self::assemble(device, queue, options, LostFlag::default())
    }

    fn assemble(
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: DeviceOptions,
        lost: LostFlag,
    ) -> Self {
        let profile = match options.profile {
            Some(profile) => fit(profile, &device),
            None => Profile::new(&device),
        };
        let can_cache = device.features().contains(wgpu::Features::PIPELINE_CACHE);
        let cache = options.pipeline_cache.filter(|_| can_cache).map(|bytes| {
            let descriptor = wgpu::PipelineCacheDescriptor {
                label: Some("wgpu-norm"),
                data: (!bytes.is_empty()).then_some(&bytes),
                fallback: true,
            };
            // SAFETY: whoever set the bytes promised that an earlier cache returned them.
            unsafe { device.create_pipeline_cache(&descriptor) }
        });
        let mut owners = Held::<Option<_>>::new(&device);
        *owners = Some((device.clone(), queue.clone()));
        let inner = Inner {
            poller: Poller::new(device.clone()),
            shader_checks: options.shader_checks,
            pipelines: Pipelines::new(&device, cache),
            lost,
            device,
            queue,
            _owners: owners,
        };
        Self {
            inner: Arc::new(inner),
            profile: Arc::new(profile),
        }
    }

    /// This context with another profile; it shares the device and all compiled pipelines. Limits above those of the
    /// device are lowered to them, and sizes of the tuning that are out of range are moved into it.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{Algorithm, Backward, DType, DataFormat, Error, GpuContext, Norm, Operation};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let mut profile = gpu.profile().clone();
    /// profile.algorithm = Some(Algorithm::ChannelsLast);
    /// let gpu = gpu.with_profile(profile);
    /// let norm = Norm::batch(DataFormat::Nxc);
    /// let operation = Operation::new(norm, Backward::default(), &[64, 128], DType::F32);
    /// assert_eq!(operation.plan(gpu.profile())?.algorithm(), Algorithm::ChannelsLast);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn with_profile(&self, profile: Profile) -> Self {
        Self {
            inner: self.inner.clone(),
            profile: Arc::new(fit(profile, &self.inner.device)),
        }
    }

    /// What the driver has compiled so far, for [`DeviceOptions::pipeline_cache`] in a later run. `None` without that
    /// option or where the device lacks it.
    pub fn pipeline_cache(&self) -> Option<Vec<u8>> {
        self.inner.pipelines.cached()
    }

    /// Name, driver and kind of the adapter.
    pub fn adapter_info(&self) -> wgpu::AdapterInfo {
        self.inner.device.adapter_info()
    }

    /// The device.
    pub fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    /// The queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// The profile that plans use.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether tensors of this element type are supported here.
    pub fn supports(&self, dtype: DType) -> bool {
        self.profile.supports(dtype)
    }

    /// Makes a buffer with these bytes, padded to a multiple of 4, and the usages STORAGE, COPY_DST and COPY_SRC.
    /// `label` names it, also in errors.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the buffer is too large, [`Error::OutOfMemory`], [`Error::DeviceLost`]. In a browser, errors
    /// that the device itself finds come later, to its handler of uncaptured errors.
    pub fn upload(&self, label: &'static str, bytes: &[u8]) -> Result<wgpu::Buffer, Error> {
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let size = bytes.len().next_multiple_of(4) as u64;
        let buffer = self.create_buffer_of(label, size, usage)?;
        self.write_buffer(label, &buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// Submits the commands that `record` records, and reads whole buffers. These need the usage COPY_SRC and sizes
    /// that are multiples of 4.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// let from = gpu.upload("from", &[1, 2, 3, 4])?;
    /// let to = gpu.upload("to", &[0; 4])?;
    /// let copy = |encoder: &mut wgpu_norm::wgpu::CommandEncoder| {
    ///     encoder.copy_buffer_to_buffer(&from, 0, &to, 0, 4); // or Bound::record
    /// };
    /// assert_eq!(gpu.submit_and_read(copy, &[to.clone()]).await?, [[1, 2, 3, 4]]);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::HostMemory`], [`Error::OutOfMemory`], [`Error::DeviceLost`], and [`Error::Gpu`] if wgpu rejects the
    /// commands.
    pub async fn submit_and_read(
        &self,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
        buffers: &[wgpu::Buffer],
    ) -> Result<Vec<Vec<u8>>, Error> {
        let bytes = buffers.iter().map(wgpu::Buffer::size);
        let watch = self.watch(bytes.fold(0, u64::saturating_add));
        let downloads = buffers.iter();
        let transfers = Transfers {
            uploads: Vec::new(),
            downloads: downloads
                .map(|buffer| (Tensor::Workspace, buffer, buffer.size()))
                .collect(),
        };
        let mut read = Vec::new();
        let take = |_, bytes: &[u8]| {
            let mut all = memory::room("bytes that are read", bytes.len())?;
            all.extend_from_slice(bytes);
            read.push(all);
            Ok(())
        };
        self.transfer(watch, &transfers, record, take).await?;
        Ok(read)
    }

    /// An error if the device is known to be lost.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        let lost = &self.inner.lost;
        match &*lost.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(reason) => Err(Error::DeviceLost {
                reason: reason.clone(),
            }),
        }
    }

    /// Turns an error on a lost device into the loss. There, creating an object silently gives an invalid one, and wgpu
    /// reports an error at its first use.
    fn or_lost(&self, error: Error) -> Error {
        // If memory runs out during an upload, wgpu gives up the device.
        if !matches!(error, Error::Gpu { .. } | Error::OutOfMemory { .. }) {
            return error;
        }
        if let Err(lost) = self.check_alive() {
            return lost;
        }
        let device = &self.inner.device;
        let mut probe = self.held::<Option<wgpu::Buffer>>();
        let created = scope::scoped(device, || {
            *probe = Some(device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("probe"),
                size: 4,
                usage: wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }));
        });
        let used = scope::scoped(device, || {
            if let Some(buffer) = &*probe {
                self.inner.queue.write_buffer(buffer, 0, &[0; 4]);
            }
        });
        match (created, used) {
            (Ok(()), Err(_)) => Error::DeviceLost {
                reason: error.to_string(),
            },
            _ => error,
        }
    }

    /// The pipeline of a kernel's variant, compiled the first time.
    pub(crate) fn pipeline(&self, variant: &Variant) -> Result<Pipeline, Error> {
        let inner = &self.inner;
        inner
            .pipelines
            .get(&inner.device, variant, inner.shader_checks)
            .map_err(|error| self.or_lost(error))
    }

    /// A buffer with room for at least this many bytes, or a typed error.
    pub(crate) fn create_buffer(
        &self,
        what: &'static str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, Error> {
        self.create_buffer_of(what, bytes.max(32).next_multiple_of(32), usage)
    }

    /// A buffer of a size, or a typed error.
    pub(crate) fn create_buffer_of(
        &self,
        what: &'static str,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, Error> {
        self.check_alive()?;
        Error::check_limit(what, "max_buffer_size", size, self.profile.max_buffer)?;
        let create = || {
            self.inner.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(what),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        scope::scoped(&self.inner.device, create)
            .map_err(|error| self.or_lost(error.typed(what, size)))
    }

    /// Copies bytes into a buffer, whose size is a multiple of 4, from an offset that is one too.
    pub(crate) fn write_buffer(
        &self,
        what: &'static str,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        let write = || {
            let queue = &self.inner.queue;
            queue.write_buffer(buffer, offset, words);
            if !rest.is_empty() {
                queue.write_buffer(buffer, offset + words.len() as u64, &last);
            }
        };
        scope::scoped(&self.inner.device, write)
            .map_err(|error| self.or_lost(error.typed(what, bytes.len() as u64)))
    }

    /// Runs `create` and returns its result, or wgpu's first error.
    pub(crate) fn scoped<T>(
        &self,
        operation: &str,
        create: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        self.check_alive()?;
        scope::scoped(&self.inner.device, create)
            .map_err(|error| self.or_lost(error.in_operation(operation)))
    }

    /// A place that frees wgpu objects under the lock of GL.
    pub(crate) fn held<T: Default>(&self) -> Held<T> {
        Held::new(&self.inner.device)
    }

    /// Watches for wgpu's errors until the work is submitted, which needs this many bytes.
    pub(crate) fn watch(&self, bytes: u64) -> Watch {
        Watch::begin(&self.inner.device, bytes)
    }

    /// Drops all compiled pipelines; those that are needed again are compiled again. Bound plans keep theirs.
    ///
    /// A context compiles and keeps a pipeline for each combination of kernel, element types and a handful of facts
    /// about a shape (does a plane begin at a vec4, how long is a register array, …): dozens for a network, some
    /// hundred if shapes, types and options vary widely. On a software driver each takes one or two megabytes.
    pub fn forget_pipelines(&self) {
        self.inner.pipelines.forget(&self.inner.device);
    }

    /// Makes wgpu free the data written for work that will not be submitted.
    fn flush(&self) {
        let submitted = self.scoped("flushing", || self.inner.queue.submit([]));
        if let Ok(submission) = submitted {
            // Polled for, though nobody waits.
            drop(self.inner.poller.poll_for(submission));
        }
    }
}
