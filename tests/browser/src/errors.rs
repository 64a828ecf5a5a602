//! A failure in a browser is an error, and the context is usable afterwards.

use wasm_bindgen::prelude::wasm_bindgen;
use wgpu_norm::{BackwardArgs, BatchNormOptions, DataFormat, Error, GpuBatchNorm, GpuContext, Grads};

#[wasm_bindgen]
extern "C" {
    /// Makes WebGPU refuse the next buffer.
    #[wasm_bindgen(js_namespace = window)]
    fn spoil_next_buffer();
}

async fn backward(gpu: &GpuContext) -> Result<Grads<f32, f32>, Error> {
    let src = [1.0_f32, 10.0, 2.0, 20.0, 3.0, 30.0];
    let diff_dst = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0];
    let (mean, variance) = ([2.0, 20.0], [2.0 / 3.0, 200.0 / 3.0]);
    let args = BackwardArgs::new(&[3, 2], &src, &diff_dst, (&mean, &variance));
    let layer = GpuBatchNorm::new(gpu, BatchNormOptions::new(DataFormat::Nxc))?;
    layer.backward(args).await
}

/// What happens in each case, and whether that is correct. Ends the device.
pub async fn all(gpu: &GpuContext) -> Vec<(bool, String)> {
    spoil_next_buffer();
    let spoiled = backward(gpu).await;
    let again = backward(gpu).await;
    gpu.device().destroy();
    let ended = backward(gpu).await;
    vec![
        (
            matches!(spoiled, Err(Error::Gpu { .. })),
            format!("with a buffer that WebGPU refuses: {spoiled:?}"),
        ),
        (
            matches!(&again, Ok(grads) if grads.diff_beta == Some(vec![1.0, 2.0])),
            format!("once more, with a good one: {again:?}"),
        ),
        (
            matches!(ended, Err(Error::DeviceLost { .. })),
            format!("on a device that has ended: {ended:?}"),
        ),
    ]
}
