//! wgpu-norm's WGSL as CubeCL kernels. CubeCL does the rest: batching, streams, memory.

use super::{Memory, missing};
use crate::plans::Prepared;
use cubecl::client::Client;
use cubecl::ir::attributes::BufferIOAttr;
use cubecl::prelude::*;
use cubecl::server::{Handle, KernelArguments, MetadataBindingInfo};
use cubecl::{CubeKernel, PrecompiledSource};
use wgpu_norm::export::Kernel;
use wgpu_norm::{Error, F16Encoder};

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

fn launch(client: &Client, kernel: Kernel, workgroups: [u32; 2], arguments: KernelArguments) {
    let [width, height] = workgroups;
    let count = CubeCount::Static(width, height, 1);
    client.launch(Box::new(Wgsl { kernel }), count, arguments);
}

/// What an encoder's probe makes of its numbers; `None` if the device refuses it.
pub fn probe(client: &Client, encoder: F16Encoder) -> Option<Vec<u8>> {
    let kernel = Kernel::f16_probe(encoder);
    let numbers = F16Encoder::numbers();
    let length = numbers.len() / 2;
    // An invocation rounds four numbers, to eight bytes.
    let workgroups = length as u32 / 8 / kernel.workgroup_size();
    let numbers = client.create_from_slice(&numbers);
    let rounded = client.empty(length);
    let arguments = KernelArguments::new()
        .with_buffer_io(numbers.binding(), BufferIOAttr::ReadOnly)
        .with_buffer_io(rounded.clone().binding(), BufferIOAttr::ReadWrite);
    launch(client, kernel, [workgroups, 1], arguments);
    Some(client.read_one(rounded).ok()?.to_vec())
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

/// A kernel. Its key identifies its text, so that the text is generated once.
struct Wgsl {
    kernel: Kernel,
}

impl Wgsl {
    fn dim(&self) -> CubeDim {
        CubeDim::new_1d(self.kernel.workgroup_size())
    }
}

impl KernelMetadata for Wgsl {
    fn id(&self) -> KernelId {
        // Unchecked: indices stay in bounds, and loops end.
        KernelId::new::<Self>()
            .mode(ExecutionMode::Unchecked)
            .info(self.kernel.clone())
            .cube_dim(self.dim().into())
    }

    fn address_type(&self) -> cubecl::ir::ElemType {
        cubecl::ir::UIntKind::U32.into()
    }
}

impl CubeKernel for Wgsl {
    fn define(&self) -> KernelDefinition {
        let dim = self.dim();
        let settings = KernelSettings::new(dim.0, ExecutionMode::Unchecked, AddressType::U32);
        KernelDefinition {
            body: Scope::root(settings.clone()),
            settings,
            info: cubecl::ir::metadata::Info::default(),
        }
    }

    fn source(&self) -> Option<PrecompiledSource> {
        Some(PrecompiledSource {
            source: self.kernel.wgsl(),
            entrypoint_name: self.kernel.entry_point().to_owned(),
            lang: "wgsl",
        })
    }
}
