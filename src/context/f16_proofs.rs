//! Which of the conversions to f16 an adapter's driver has shown to be right: probed once a process.

use crate::context::GpuContext;
use crate::error::Error;
use crate::export::Kernel;
use crate::f16_encoder::F16Encoder;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The results of probes, by adapter and driver.
static PROBED: Mutex<BTreeMap<(String, F16Encoder), bool>> = Mutex::new(BTreeMap::new());

/// The adapter and its driver; in browsers, which do not name them, the device.
fn key(device: &wgpu::Device, encoder: F16Encoder) -> (String, F16Encoder) {
    let info = device.adapter_info();
    let mut name = format!("{info:?}");
    if info.backend == wgpu::Backend::BrowserWebGpu {
        let mut hasher = DefaultHasher::new();
        device.hash(&mut hasher);
        name += &hasher.finish().to_string();
    }
    (name, encoder)
}

/// The result of a probe; `None` before it, and where the device cannot compile the conversion.
fn probed(device: &wgpu::Device, encoder: F16Encoder) -> Option<bool> {
    let compiles =
        encoder != F16Encoder::Cast || device.features().contains(wgpu::Features::SHADER_F16);
    let probed = PROBED.lock().unwrap_or_else(PoisonError::into_inner);
    let result = probed.get(&key(device, encoder)).copied();
    result.filter(|_| compiles)
}

/// The encoder, or integers if it has not been proven on this device.
pub(super) fn proven(device: &wgpu::Device, encoder: F16Encoder) -> F16Encoder {
    if probed(device, encoder) == Some(true) {
        encoder
    } else {
        F16Encoder::Integers
    }
}

impl GpuContext {
    /// Rounds some 127,000 numbers to f16 by the device's own conversions, once a process for an adapter and its
    /// driver, and returns the first that is right to the bit, else integers. [`new`](Self::new) and
    /// [`from_adapter`](Self::from_adapter) do this on a GPU unless a profile is given. For a device of yours:
    ///
    /// ```
    /// # pollster::block_on(async {
    /// use wgpu_norm::{ContextOptions, DeviceOptions, Error, GpuContext};
    ///
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// # let adapter = ContextOptions::default().adapter().await?;
    /// # let (device, queue) = adapter.request_device(&Default::default()).await.unwrap();
    /// let gpu = GpuContext::from_device(device, queue, DeviceOptions::default());
    /// let mut profile = gpu.profile().clone();
    /// profile.f16_encoder = gpu.probe_f16().await;
    /// let gpu = gpu.with_profile(profile);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    pub async fn probe_f16(&self) -> F16Encoder {
        let mut right = F16Encoder::Integers;
        // Both, since a profile may ask for either.
        for encoder in [F16Encoder::Cast, F16Encoder::Pack] {
            if self.is_right(encoder).await {
                right = encoder;
            }
        }
        right
    }

    async fn is_right(&self, encoder: F16Encoder) -> bool {
        let device = self.device();
        if encoder == F16Encoder::Cast && !device.features().contains(wgpu::Features::SHADER_F16) {
            return false;
        }
        if let Some(known) = probed(device, encoder) {
            return known;
        }
        // A driver that refuses the conversion has not shown that it is right; without memory, another try may.
        let Ok(rounded) = self.rounded(&Kernel::f16_probe(encoder)).await else {
            return false;
        };
        let right = F16Encoder::is_right(&rounded);
        let mut probed = PROBED.lock().unwrap_or_else(PoisonError::into_inner);
        probed.insert(key(device, encoder), right);
        right
    }

    /// What a probe makes of its numbers.
    async fn rounded(&self, kernel: &Kernel) -> Result<Vec<u8>, Error> {
        let device = self.device();
        let numbers = F16Encoder::numbers();
        let length = numbers.len() / 2;
        let mut buffers = self.held::<Vec<wgpu::Buffer>>();
        buffers.push(self.upload("numbers", &numbers)?);
        buffers.push(self.upload("rounded", &vec![0; length])?);
        let mut objects = self.held::<Option<(wgpu::ComputePipeline, wgpu::BindGroup)>>();
        *objects = Some(self.scoped("probing f16", || {
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(kernel.entry_point()),
                source: wgpu::ShaderSource::Wgsl(kernel.wgsl().into()),
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(kernel.entry_point()),
                layout: None,
                module: &module,
                entry_point: Some(kernel.entry_point()),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
            let entries = (0..).zip(buffers.iter());
            let entries: Vec<_> = entries
                .map(|(binding, buffer)| entry(binding, buffer))
                .collect();
            let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(kernel.entry_point()),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            });
            (pipeline, bind_group)
        })?);
        let invocations = length as u32 / 8;
        let record = |encoder: &mut wgpu::CommandEncoder| {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            if let Some((pipeline, bind_group)) = &*objects {
                pass.set_pipeline(pipeline);
                pass.set_bind_group(0, bind_group, &[]);
                pass.dispatch_workgroups(invocations / kernel.workgroup_size(), 1, 1);
            }
        };
        let read = self.submit_and_read(record, buffers.get(1..).unwrap_or_default());
        Ok(read.await?.into_iter().flatten().collect())
    }
}

fn entry(binding: u32, buffer: &wgpu::Buffer) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: buffer.as_entire_binding(),
    }
}
