//! Pipelines, compiled when first needed and kept.

use super::gl_lock::{Held, holds_gl_lock, lock_gl};
use super::scope::scoped;
use crate::error::Error;
use crate::kernels::Variant;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A compiled variant and the layout of its bindings.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// A variant's pipeline, once it is compiled. The thread that compiles it holds the lock.
type Slot = Arc<Mutex<Option<Pipeline>>>;

/// All pipelines of a context.
#[derive(Debug)]
pub(super) struct Pipelines {
    slots: Mutex<Held<HashMap<Variant, Slot>>>,
    cache: Option<wgpu::PipelineCache>,
}

impl Pipelines {
    pub fn new(device: &wgpu::Device, cache: Option<wgpu::PipelineCache>) -> Self {
        Self {
            slots: Mutex::new(Held::new(device)),
            cache,
        }
    }

    /// What the driver has compiled, if there is a cache.
    pub fn cached(&self) -> Option<Vec<u8>> {
        self.cache.as_ref()?.get_data()
    }

    /// Returns a pipeline, compiled once: threads that need the same one wait, others do not.
    pub fn get(
        &self,
        device: &wgpu::Device,
        variant: &Variant,
        shader_checks: bool,
    ) -> Result<Pipeline, Error> {
        let slot = Slot::clone(lock(&self.slots).entry(variant.clone()).or_default());
        let compile = || {
            scoped(device, || {
                compile(device, variant, shader_checks, self.cache.as_ref())
            })
            .map_err(|complaint| {
                complaint.in_operation(&format!("compiling {}", variant.kernel.entry().name()))
            })
        };
        // A callback that runs under the lock of GL must not wait for a thread that needs it to compile.
        let mut compiled = if holds_gl_lock() {
            match slot.try_lock() {
                Ok(compiled) => compiled,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return compile(),
            }
        } else {
            lock(&slot)
        };
        if let Some(pipeline) = &*compiled {
            return Ok(pipeline.clone());
        }
        let pipeline = compile()?;
        *compiled = Some(pipeline.clone());
        Ok(pipeline)
    }

    /// Drops all pipelines, so that they are compiled again.
    pub fn forget(&self, device: &wgpu::Device) {
        let _lock = lock_gl(device);
        lock(&self.slots).clear();
    }
}

/// Nothing is half-done while a lock is held, so a panic there does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compile(
    device: &wgpu::Device,
    variant: &Variant,
    shader_checks: bool,
    cache: Option<&wgpu::PipelineCache>,
) -> Pipeline {
    let name = variant.kernel.entry().name();
    let source = wgpu::ShaderModuleDescriptor {
        label: Some(name),
        source: wgpu::ShaderSource::Wgsl(variant.wgsl().into()),
    };
    let module = if shader_checks {
        device.create_shader_module(source)
    } else {
        // SAFETY: the text is this crate's own, its indices stay in bounds and its loops end. The argument is at the
        // top of the module `kernels`, and tests compare checked and unchecked runs.
        unsafe {
            device.create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked())
        }
    };
    let buffer = |binding: usize, ty| wgpu::BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let mut entries = Vec::new();
    for (binding, &tensor) in variant.bound.iter().enumerate() {
        let read_only = !variant.writes(tensor);
        entries.push(buffer(
            binding,
            wgpu::BufferBindingType::Storage { read_only },
        ));
    }
    entries.push(buffer(entries.len(), wgpu::BufferBindingType::Uniform));
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(name),
        entries: &entries,
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(name),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &[],
            // Every slot of workgroup memory is written before it is read.
            zero_initialize_workgroup_memory: false,
        },
        cache,
    });
    Pipeline { pipeline, layout }
}
