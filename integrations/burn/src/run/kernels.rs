//! A plan's dispatches in CubeCL's queue.

use super::{Memory, missing};
use crate::launch::launch;
use crate::plans::Prepared;
use cubecl::client::Client;
use cubecl::ir::attributes::BufferIOAttr;
use cubecl::server::{Handle, KernelArguments, MetadataBindingInfo};
use wgpu_norm::Error;

/// Launches a plan's dispatches.
pub fn run(client: &Client, prepared: &Prepared, handles: &[Memory]) -> Result<(), Error> {
    let rooms = handles.iter().map(|(role, handle)| (*role, bytes(handle)));
    for dispatch in prepared.dispatches(rooms.collect())?.iter() {
        let mut arguments = KernelArguments::new();
        for binding in &dispatch.bindings {
            let handle = handles.iter().find(|(role, _)| *role == binding.tensor);
            let (_, handle) = handle.ok_or_else(|| missing(binding.tensor))?;
            let part = part(handle, binding.offset, binding.size).binding();
            // A launch that fails invalidates what it should have written, and nothing else.
            let io = match binding.written {
                true => BufferIOAttr::ReadWrite,
                false => BufferIOAttr::ReadOnly,
            };
            arguments = arguments.with_buffer_io(part, io);
        }
        let words = dispatch.uniforms.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_ne_bytes(bytes)
        });
        let arguments = arguments.with_info(MetadataBindingInfo::custom(words.collect()));
        launch(
            client,
            dispatch.kernel.clone(),
            dispatch.workgroups,
            arguments,
        );
    }
    Ok(())
}

/// The size that may be bound of a tensor: CubeCL binds whole words.
fn bytes(handle: &Handle) -> u64 {
    handle.size_in_used().next_multiple_of(4)
}

/// `size` bytes of a tensor from an offset on.
fn part(handle: &Handle, offset: u64, size: u64) -> Handle {
    let behind = handle.size_in_used().saturating_sub(offset + size);
    let mut part = handle.clone();
    if offset > 0 {
        part = part.offset_start(offset);
    }
    if behind > 0 && size > 0 {
        part = part.offset_end(behind);
    }
    part
}
