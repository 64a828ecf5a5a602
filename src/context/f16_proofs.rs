//! Which of the conversions to f16 an adapter's driver has shown to be right: probed once a process.

use crate::export::Kernel;
use crate::{Error, F16Encoder, GpuContext};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The results of probes, by adapter and driver.
static PROBED: Mutex<BTreeMap<(String, F16Encoder), bool>> = Mutex::new(BTreeMap::new());

fn key(device: &wgpu::Device, encoder: F16Encoder) -> (String, F16Encoder) {
    let wgpu::AdapterInfo {
        name,
        vendor,
        device,
        driver,
        driver_info,
        backend,
        ..
    } = device.adapter_info();
    (
        format!("{backend} {vendor} {device} {name} {driver} {driver_info}"),
        encoder,
    )
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
    /// Rounds some 64,000 numbers to f16 by the device's own conversions, once a process for an adapter and its driver,
    /// and returns the first that is right to the bit, else integers. [`new`](Self::new) and
    /// [`from_adapter`](Self::from_adapter) do this on a GPU; for a device of yours:
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
        // A driver that refuses the conversion has not shown that it is right.
        let rounded = self.rounded(&Kernel::f16_probe(encoder)).await;
        let right = rounded.is_ok_and(|rounded| F16Encoder::is_right(&rounded));
        let mut probed = PROBED.lock().unwrap_or_else(PoisonError::into_inner);
        probed.insert(key(device, encoder), right);
        right
    }

    /// What a probe makes of its numbers.
    async fn rounded(&self, kernel: &Kernel) -> Result<Vec<u8>, Error> {
        let device = self.device();
        let numbers = F16Encoder::numbers();
        let length = numbers.len() / 2;
        let numbers = self.upload("numbers", &numbers)?;
        let rounded = self.upload("rounded", &vec![0; length])?;
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
            let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(kernel.entry_point()),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[
                    wgpu::BindGroupEntry {
                        binding: 0,
                        resource: numbers.as_entire_binding(),
                    },
                    wgpu::BindGroupEntry {
                        binding: 1,
                        resource: rounded.as_entire_binding(),
                    },
                ],
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
        let read = self.submit_and_read(record, std::slice::from_ref(&rounded));
        Ok(read.await?.into_iter().flatten().collect())
    }
}
