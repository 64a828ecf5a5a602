//! How a device's kernels round to f16: by its own conversion, once a probe in CubeCL's queue has shown that it is
//! right.

use crate::launch::launch;
use burn::backend::CubeDevice;
use cubecl::client::Client;
use cubecl::ir::attributes::BufferIOAttr;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::server::KernelArguments;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use wgpu_norm::F16Encoder;
use wgpu_norm::export::Kernel;

static KNOWN: Mutex<Option<HashMap<CubeDevice, F16Encoder>>> = Mutex::new(None);

/// The encoder for a device: probed once on a GPU; integers on software drivers, which calculate with them as fast, and
/// in browsers, where nothing can be awaited here.
pub fn encoder(device: &CubeDevice) -> F16Encoder {
    let client = device.client();
    let software = client.properties().identity.physical.is_none();
    if software || cfg!(target_family = "wasm") {
        return F16Encoder::Integers;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    *known
        .entry(device.clone())
        .or_insert_with(|| first_right(&client))
}

/// The first encoder that rounds to nearest even.
fn first_right(client: &Client) -> F16Encoder {
    let has_f16 = !client
        .properties()
        .type_usage(ElemType::Float(FloatKind::F16))
        .is_empty();
    let right = |&encoder: &F16Encoder| match encoder {
        F16Encoder::Integers => true,
        F16Encoder::Cast if !has_f16 => false,
        _ => probe(client, encoder).is_some_and(|rounded| F16Encoder::is_right(&rounded)),
    };
    F16Encoder::ALL.into_iter().find(right).unwrap_or_default()
}

/// What an encoder's probe makes of its numbers; `None` if the device refuses it.
fn probe(client: &Client, encoder: F16Encoder) -> Option<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// Asks the driver that the tests run on, although it would not be asked otherwise.
    #[test]
    fn the_probe_agrees_with_the_kernels_own() {
        let device = crate::device::cube_device(&Device::default()).unwrap();
        let client = device.client();
        let integers = probe(&client, F16Encoder::Integers).unwrap();
        assert!(F16Encoder::is_right(&integers));
        let packed = probe(&client, F16Encoder::Pack).unwrap();
        let first = first_right(&client);
        assert_eq!(first == F16Encoder::Pack, F16Encoder::is_right(&packed));
    }
}
