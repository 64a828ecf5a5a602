//! wgpu-norm's WGSL as CubeCL kernels. CubeCL does the rest: batching, streams, memory.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::KernelArguments;
use cubecl::{CubeKernel, PrecompiledSource};
use wgpu_norm::export::Kernel;

/// Launches a kernel.
pub fn launch(client: &Client, kernel: Kernel, workgroups: [u32; 2], arguments: KernelArguments) {
    let [width, height] = workgroups;
    let count = CubeCount::Static(width, height, 1);
    client.launch(Box::new(Wgsl { kernel }), count, arguments);
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
    /// What CubeCL's profile calls the kernel, before a hash of its text.
    fn name(&self) -> &'static str {
        self.kernel.entry_point()
    }

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
