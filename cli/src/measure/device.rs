//! Objects that the bench itself creates on the device.

use std::fmt::Display;
use wgpu_norm::Error;

/// An error of wgpu's as the library reports it.
pub fn gpu_error(operation: &str, error: impl Display) -> Error {
    Error::gpu(operation, error)
}

/// Runs `create` and returns its result, or wgpu's complaint. `bytes` is the size of its allocations.
pub fn scoped<T>(
    device: &wgpu::Device,
    what: &'static str,
    bytes: u64,
    create: impl FnOnce() -> T,
) -> Result<T, Error> {
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let made = create();
    // The innermost is popped first.
    let internal = pollster::block_on(internal.pop());
    let validation = pollster::block_on(validation.pop());
    if pollster::block_on(memory.pop()).is_some() {
        return Err(Error::out_of_memory(what, bytes));
    }
    match internal.or(validation) {
        Some(error) => Err(gpu_error(what, error)),
        None => Ok(made),
    }
}

/// A storage buffer that can be a copy's source or destination.
pub fn storage(
    device: &wgpu::Device,
    what: &'static str,
    bytes: u64,
) -> Result<wgpu::Buffer, Error> {
    let size = bytes.max(32).next_multiple_of(32);
    let available = device.limits().max_buffer_size;
    Error::check_limit(what, "max_buffer_size", size, available)?;
    scoped(device, what, size, || {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        })
    })
}
