//! `LayerNormalization` and `RMSNormalization`.

use crate::operators::broadcast::{common_sizes, rows_norm};
use crate::operators::*;

operator! {
    /// ONNX's [`LayerNormalization`](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html) of opset 17.
    ///
    /// The axes from `axis` on are normalized; a row consists of the elements with the same indices along the axes
    /// before it. With means over the row:
    ///
    /// * Mean = mean(X) and Var = mean((X − Mean)²)
    /// * InvStdDev = 1/√(Var + epsilon)
    /// * Y = (X − Mean) · InvStdDev · Scale + B
    ///
    /// Scale and B are each broadcast to X: they have sizes of X's last axes, or 1. For X of shape `(N, T, C)`, `[C]`
    /// and `[1, C]` are a layer norm's parameters, `[N, 1, C]` each sample's own, and `[]` is a single number.
    ///
    /// | index | input | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | rank 1 to 8 | `src` |
    /// | 1 | `Scale` | T | its own | `gamma` |
    /// | 2 | `B`, optional | T | its own | `beta` |
    ///
    /// | index | output | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `Y` | T | X's | `dst` |
    /// | 1 | `Mean` | U | the axes before `axis`, then 1s | `mean` |
    /// | 2 | `InvStdDev` | U | the axes before `axis`, then 1s | `variance`: the variance itself |
    ///
    /// # Differences
    ///
    /// * U, the type of the statistics, is f32, or f64 if T is f64. The attribute `stash_type`, which selects it in the
    ///   document, is left out; its default, 1, is f32. Sums are kept in U, as in the document.
    /// * The kernels take a Scale and a B that vary along the same axes. Those that vary along different ones are first
    ///   expanded on the CPU; on device buffers they are refused.
    /// * epsilon must be above 0, and the attribute `axis` is called `begin_norm_axis` in errors.
    /// * On device buffers the variance is written in place of InvStdDev.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onnx::LayerNormalization};
    ///
    /// let op = LayerNormalization::default(); // the last axis, epsilon 1e-5
    /// let x = [1.0_f32, 3.0, 2.0, 4.0]; // two rows
    /// let inputs = Inputs::new()
    ///     .with("X", &[2, 2], &x)
    ///     .with("Scale", &[2], &[1.0_f32, 2.0])
    ///     .with("B", &[2], &[0.0_f32, 5.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// assert_eq!(outputs.get::<f32>("Mean")?, [2.0, 3.0]);
    /// assert!((outputs.get::<f32>("InvStdDev")?[0] - 1.0).abs() < 1e-4);
    /// assert!((outputs.get::<f32>("Y")?[3] - 7.0).abs() < 1e-4);
    ///
    /// let by_row = [1.0_f32, 3.0];
    /// let inputs = Inputs::new().with("X", &[2, 2], &x).with("Scale", &[2, 1], &by_row);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let y: &[f32] = outputs.get("Y")?;
    /// assert!((y[1] - 1.0).abs() < 1e-4 && (y[3] - 3.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    LayerNormalization {
    } {
        /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
        axis: i64 = -1,
        /// Attribute `epsilon`: added to the variance; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    default
    inputs(_) { X: Src, Scale: Gamma, B: Beta.optional() }
    outputs(_) { Y: Dst, Mean: Mean.keeping_rank(), InvStdDev: Variance.inverse().keeping_rank() }
}

impl Definition for LayerNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let sizes = common_sizes(given, &[Tensor::Gamma, Tensor::Beta])?;
        let norm = rows_norm(given.shape, self.axis, &sizes, true);
        given.operation_with_sums(norm, Forward::default(), self.epsilon)
    }
}

operator! {
    /// ONNX's [`RMSNormalization`](https://onnx.ai/onnx/operators/onnx__RMSNormalization.html) of opset 23:
    /// Y = X / √(mean(X²) + epsilon) · scale, with the mean over the axes from `axis` on.
    ///
    /// scale is broadcast to X, as in [`LayerNormalization`].
    ///
    /// | index | input | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | rank 1 to 8 | `src` |
    /// | 1 | `scale` | V | its own | `gamma` |
    ///
    /// The output is `Y`, of X's shape; plans call it `dst`.
    ///
    /// # Differences
    ///
    /// * Y has X's type. In the document it has scale's.
    /// * V is T, or f32 if T is f16 or bf16.
    /// * Unless scale varies along exactly the normalized axes, the operation also writes `mean_square`, which ONNX
    ///   does not return.
    /// * The attribute `stash_type` is left out: sums are kept in f32, its default, and in f64 for f64.
    /// * epsilon must be above 0, and the attribute `axis` is called `begin_norm_axis` in errors.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onnx::RmsNormalization};
    ///
    /// let op = RmsNormalization::default(); // the last axis, epsilon 1e-5
    /// let inputs = Inputs::new()
    ///     .with("X", &[2, 2], &[1.0_f32, 1.0, 2.0, -2.0]) // two rows
    ///     .with("scale", &[2], &[1.0_f32, 3.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let y: &[f32] = outputs.get("Y")?;
    /// assert!((y[0] - 1.0).abs() < 1e-4 && (y[3] + 3.0).abs() < 1e-4);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    RmsNormalization {
    } {
        /// Attribute `axis`, in [−r, r − 1] for X of rank r, negative from the end; −1 by default.
        axis: i64 = -1,
        /// Attribute `epsilon`: added to the mean of squares; finite and above 0; 1e-5 by default.
        epsilon: f32 = 1e-5,
    }
    /// The document's defaults.
    default
    inputs(_) { X: Src, scale: Gamma }
    outputs(_) { Y: Dst }
}

impl Definition for RmsNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let sizes = common_sizes(given, &[Tensor::Gamma])?;
        let norm = rows_norm(given.shape, self.axis, &sizes, false);
        let pass = forward(!norm.is_over_rows());
        given.operation_with_sums(norm, pass, self.epsilon)
    }
}
