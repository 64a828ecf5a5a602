//! A device to run on: chosen by us or given by the caller.

mod adapter;
mod gl_lock;
mod mapped;
mod pipelines;
mod poller;
mod readback;
mod scope;

pub use adapter::{ContextOptions, adapters, unfit};
pub(crate) use gl_lock::Held;
pub(crate) use pipelines::Pipeline;
pub(crate) use readback::{Submitted, Transfers};
pub(crate) use scope::Watch;

use crate::kernels::Variant;
use crate::{DType, Error, Profile, Tensor, memory};
use pipelines::Pipelines;
use poller::Poller;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU to run on: a device, its queue, and the pipelines compiled for it so far.
///
/// Cloning is cheap and shares everything. A context may be used from several threads at once and
/// from any executor. Dropping the last clone waits for GPU work of calls whose futures were dropped before
/// it was done.
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
    /// Dropped last, so that a device of our own ends under the lock of GL.
    _owners: Held<Option<(wgpu::Device, wgpu::Queue)>>,
}

/// Set by the device-lost callback, where the device is ours.
type LostFlag = Arc<Mutex<Option<String>>>;

/// How a context uses a device. What that means for the callbacks of a caller's device:
/// [`GpuContext::from_device`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceOptions {
    shader_checks: bool,
    profile: Option<Profile>,
}

impl DeviceOptions {
    /// Sets whether kernels are compiled with wgpu's bounds checks, which they do not need.
    #[must_use]
    pub fn shader_checks(self, shader_checks: bool) -> Self {
        Self {
            shader_checks,
            ..self
        }
    }

    /// Sets the profile, in place of the one that the device suggests, whatever `WGPU_NORM_PROFILE` says. Limits above the
    /// device's are lowered to it, sizes of the tuning out of range are moved into it.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self {
            profile: Some(profile),
            ..self
        }
    }
}

impl GpuContext {
    /// The features of wgpu that the kernels use where a device has them: f64 for f64 data, which need it, and
    /// for speed sums over subgroups, and 64-bit words, by which software drivers move data. A device of yours
    /// may be opened with `adapter.features() & GpuContext::USEFUL_FEATURES`. Its limits count too:
    /// `adapter.limits()` are best, `Limits::default()` allow all kernels in workgroups of 256, and the four storage
    /// buffers of `Limits::downlevel_defaults()` leave the fused kernels out.
    pub const USEFUL_FEATURES: wgpu::Features = wgpu::Features::SHADER_F64
        .union(wgpu::Features::SHADER_INT64)
        .union(wgpu::Features::SUBGROUP);

    /// A context on the best adapter there is: a discrete GPU before an integrated one before a
    /// software driver (which is logged as a warning).
    ///
    /// The environment variables `WGPU_BACKEND` (`vulkan`, `metal`, `dx12`, `gl`) and
    /// `WGPU_ADAPTER_NAME` (a part of the name, in any case) narrow the choice; `WGPU_NORM_PROFILE`
    /// overrides the adapter's [`Tuning`](crate::Tuning) in part or whole, for instance
    /// `workgroup=128,busy_workgroups=512`.
    ///
    /// # Errors
    ///
    /// [`Error::NoAdapter`], [`Error::RequestDevice`]; [`Error::Argument`] and [`Error::Tuning`] where a variable
    /// makes no sense.
    pub async fn new() -> Result<Self, Error> {
        Self::with_options(ContextOptions::default()).await
    }

    /// A context on an adapter that fits `options`.
    ///
    /// # Errors
    ///
    /// As those of [`new`](Self::new).
    pub async fn with_options(options: ContextOptions) -> Result<Self, Error> {
        let adapter = options.adapter().await?;
        Self::from_adapter(&adapter, options.device).await
    }

    /// A context on a device of its own, of the given adapter.
    ///
    /// # Errors
    ///
    /// [`Error::NoAdapter`] where the adapter cannot run the kernels, [`Error::RequestDevice`],
    /// [`Error::Tuning`] where `WGPU_NORM_PROFILE` makes no sense.
    pub async fn from_adapter(
        adapter: &wgpu::Adapter,
        options: DeviceOptions,
    ) -> Result<Self, Error> {
        let profile = match options.profile {
            Some(profile) => profile,
            None => Profile::for_adapter(adapter).with_env()?,
        };
        let (device, queue) = adapter::open(adapter).await?;
        let options = DeviceOptions {
            profile: Some(profile),
            ..options
        };
        let lost = LostFlag::default();
        let flag = Arc::downgrade(&lost);
        device.set_device_lost_callback(move |reason, message| {
            if let Some(flag) = flag.upgrade() {
                let reason = match message.is_empty() {
                    true => format!("{reason:?}"),
                    false => format!("{reason:?}: {message}"),
                };
                *flag.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            }
        });
        device.on_uncaptured_error(Arc::new(|error| log::error!("uncaptured: {error}")));
        Ok(Self::assemble(device, queue, options, lost))
    }

    /// A context on a caller's device, whose callbacks it leaves alone. The device must allow four
    /// storage buffers a shader stage, as wgpu's `Limits::default()` and `Limits::downlevel_defaults()` do;
    /// otherwise planning is an [`Error::Limit`]. Eight allow the fused kernels, and
    /// [`USEFUL_FEATURES`](Self::USEFUL_FEATURES) faster ones. `WGPU_NORM_PROFILE` is not looked at;
    /// [`Profile::with_env`] gives a profile that follows it.
    ///
    /// Buffers that are bound later must belong to this very device; those of another device are an
    /// error, but wgpu cannot tell apart the devices of two instances: that they are not mixed is up
    /// to the caller.
    ///
    /// wgpu runs the callbacks of a device (of `map_async`, `on_submitted_work_done`, the device's loss)
    /// wherever the device is polled or submitted to, so yours may run inside of this crate's calls and on the
    /// thread that it polls on. One that panics inside of a call unwinds through that call; on the polling
    /// thread it makes the waiting calls fail with [`Error::Gpu`]. A callback must not wait for a call of this
    /// crate: that deadlocks.
    ///
    /// The device may be destroyed at any time: calls in flight then end with [`Error::DeviceLost`]. Without this
    /// crate's feature `native` it must not be destroyed while one runs, for wgpu may free what is being read back.
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
            Some(profile) => profile.within(&device),
            None => Profile::new(&device),
        };
        let mut owners = Held::<Option<_>>::new(&device);
        *owners = Some((device.clone(), queue.clone()));
        let inner = Inner {
            poller: Poller::new(device.clone()),
            shader_checks: options.shader_checks,
            pipelines: Pipelines::new(&device),
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

    /// This context under another profile: it shares the device and all compiled pipelines. Limits above the
    /// device's are lowered to it, sizes of the tuning out of range are moved into it.
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
            profile: Arc::new(profile.within(&self.inner.device)),
        }
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

    /// What plans know of the adapter.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether tensors of this element type can be computed here.
    pub fn supports(&self, dtype: DType) -> bool {
        self.profile.supports(dtype)
    }

    /// A buffer with these bytes, up to the next multiple of 4, and the usages STORAGE, COPY_DST and COPY_SRC. It is named
    /// `label`, in errors as well.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for more than a buffer may have, [`Error::OutOfMemory`], [`Error::DeviceLost`]. In a browser what
    /// the device itself finds wrong comes later, to its handler of uncaptured errors.
    pub fn upload(&self, label: &'static str, bytes: &[u8]) -> Result<wgpu::Buffer, Error> {
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let size = bytes.len().next_multiple_of(4) as u64;
        let buffer = self.create_buffer_of(label, size, usage)?;
        self.write_buffer(label, &buffer, bytes)?;
        Ok(buffer)
    }

    /// Submits what `record` records, and reads whole buffers, which need the usage COPY_SRC and sizes that are multiples
    /// of 4.
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
    /// [`Error::HostMemory`], [`Error::OutOfMemory`], [`Error::DeviceLost`], and [`Error::Gpu`] for what wgpu finds wrong with
    /// the commands.
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

    /// What wgpu complains of on a lost device is the loss: creating an object there gives an invalid
    /// one in silence, and the complaint comes from its first use.
    fn or_lost(&self, error: Error) -> Error {
        // wgpu gives a device up when memory ends in the midst of an upload.
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

    /// A buffer with room for at least so many bytes, or a typed error.
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

    /// Copies bytes to the start of a buffer, whose size is a multiple of 4.
    pub(crate) fn write_buffer(
        &self,
        what: &'static str,
        buffer: &wgpu::Buffer,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.write_buffer_at(what, buffer, 0, bytes)
    }

    /// Copies bytes into a buffer, from an offset that is a multiple of 4.
    pub(crate) fn write_buffer_at(
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

    /// Runs `create` and returns its result, or wgpu's first complaint.
    pub(crate) fn scoped<T>(
        &self,
        operation: &str,
        create: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        self.check_alive()?;
        scope::scoped(&self.inner.device, create)
            .map_err(|error| self.or_lost(error.in_operation(operation)))
    }

    /// A place for wgpu objects.
    pub(crate) fn held<T: Default>(&self) -> Held<T> {
        Held::new(&self.inner.device)
    }

    /// Looks out for wgpu's complaints until the work is submitted, which needs so many bytes.
    pub(crate) fn watch(&self, bytes: u64) -> Watch {
        Watch::begin(&self.inner.device, bytes)
    }

    /// Lets go of all compiled pipelines; what is needed again is compiled again. Bound plans keep theirs.
    ///
    /// A context compiles a pipeline for each kernel, element types and handful of facts about a shape (does a
    /// plane begin at a vec4, how long is a register array, …) and keeps it: dozens for a network, some hundred
    /// where shapes, types and options are all over the place. On a software driver each takes a megabyte or two.
    pub fn forget_pipelines(&self) {
        self.inner.pipelines.forget(&self.inner.device);
    }

    /// Has wgpu let go of what was written for work that will not be submitted.
    fn flush(&self) {
        let submitted = self.scoped("flushing", || self.inner.queue.submit([]));
        if let Ok(submission) = submitted {
            // Polled for, though nobody waits.
            drop(self.inner.poller.poll_for(submission));
        }
    }

    /// Submits what `record` records, and has these buffers mapped once that is done.
    pub(crate) fn submit(
        &self,
        staging: &[(Tensor, wgpu::Buffer)],
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Submitted, Error> {
        readback::submit(self, staging, record)
    }

    /// Ends when what was submitted is done, and its buffers are mapped.
    pub(crate) fn done(
        &self,
        watch: Watch,
        submitted: Submitted,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        readback::done(self, watch, submitted)
    }

    /// Gives some bytes of a mapped buffer, from a multiple of 8 on, to `take`.
    pub(crate) fn read_mapped<T>(
        &self,
        tensor: Tensor,
        buffer: &wgpu::Buffer,
        bytes: &Range<u64>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        readback::read_mapped(self, tensor, buffer, bytes, take)
    }

    /// Uploads, submits what `record` records, and gives the bytes of each download to `take`.
    pub(crate) async fn transfer(
        &self,
        watch: Watch,
        transfers: &Transfers<'_>,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
        take: impl FnMut(Tensor, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        readback::submit_and_read(self, watch, transfers, record, take).await
    }
}
