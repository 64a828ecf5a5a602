//! Access to the bytes of a mapped buffer, which are kept until they are read.

use std::ops::Range;

/// Passes some bytes of a mapped buffer to `read`, or returns the reason why there are none.
///
/// wgpu frees the bytes when its device is destroyed and then polled by any thread, even while they are being read
/// (<https://github.com/gfx-rs/wgpu/issues/10256>). So they are read under wgpu's own lock against destruction.
pub(super) fn read<T>(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    bytes: Range<u64>,
    read: impl FnOnce(&[u8]) -> T,
) -> Result<T, String> {
    // This call takes the lock itself, so it must come before the lock is taken below.
    let view = buffer
        .get_mapped_range(bytes)
        .map_err(|error| error.to_string())?;
    let read = || read(&view);
    let bytes = match device.adapter_info().backend {
        #[cfg(all(
            feature = "native",
            any(
                windows,
                target_os = "linux",
                target_os = "android",
                target_os = "freebsd"
            )
        ))]
        wgpu::Backend::Vulkan => while_alive::<wgpu::hal::api::Vulkan, _>(buffer, read),
        #[cfg(all(
            feature = "native",
            any(
                windows,
                target_os = "linux",
                target_os = "android",
                target_os = "freebsd"
            )
        ))]
        wgpu::Backend::Gl => while_alive::<wgpu::hal::api::Gles, _>(buffer, read),
        #[cfg(all(feature = "native", target_vendor = "apple"))]
        wgpu::Backend::Metal => while_alive::<wgpu::hal::api::Metal, _>(buffer, read),
        #[cfg(all(feature = "native", windows))]
        wgpu::Backend::Dx12 => while_alive::<wgpu::hal::api::Dx12, _>(buffer, read),
        // In a browser the bytes are already a copy. Nothing is known here of other backends.
        _ => Some(read()),
    };
    bytes.ok_or_else(|| "the buffer was destroyed".to_owned())
}

/// Calls `read` while the buffer cannot be destroyed; returns none if it was destroyed before.
#[cfg(all(feature = "native", not(target_arch = "wasm32")))]
fn while_alive<A: wgpu::hal::Api, T>(buffer: &wgpu::Buffer, read: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: only the guard is used. The backend's buffer behind it is neither used nor destroyed here.
    let guard = unsafe { buffer.as_hal::<A>() }?;
    let result = read();
    drop(guard);
    Some(result)
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pollster::block_on;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn bytes_outlive_their_device_while_they_are_read() {
        for adapter in block_on(crate::context::adapters(wgpu::Backends::all())) {
            let descriptor = wgpu::DeviceDescriptor {
                required_limits: adapter.limits(),
                ..Default::default()
            };
            let (device, queue) = block_on(adapter.request_device(&descriptor)).unwrap();
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 64 << 20, // large enough that a driver gives it back to the system at once
                usage,
                mapped_at_creation: false,
            });
            queue.write_buffer(&buffer, 0, &[1; 1024]);
            queue.submit([]);
            buffer.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
            device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
            let (ends, end) = (device.clone(), || thread::sleep(Duration::from_millis(200)));
            let (sum, polls) = read(&device, &buffer, 0..buffer.size(), |bytes| {
                let polls = thread::spawn(move || {
                    ends.destroy();
                    let _ = ends.poll(wgpu::PollType::Poll);
                });
                end();
                let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
                (sum, polls)
            })
            .unwrap();
            assert_eq!(sum, 1024);
            polls.join().unwrap();
            assert!(read(&device, &buffer, 0..8, <[u8]>::len).is_err());
        }
    }
}
