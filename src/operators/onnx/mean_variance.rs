//! `MeanVarianceNormalization`.

use crate::operators::*;

operator! {
    /// ONNX's [`MeanVarianceNormalization`](https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html) of
    /// opset 13: Y = (X − Mean) / √Var, with the mean and the biased variance over `axes`.
    ///
    /// | index | input | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `X` | T | rank 1 to 8 | `src` |
    ///
    /// | index | output | type | shape | in plans |
    /// |---|---|---|---|---|
    /// | 0 | `Y` | T | X's | `dst` |
    ///
    /// # Differences
    ///
    /// * The document's function body adds 1e-9 to the deviation: Y = (X − Mean) / (√Var + 1e-9). Here `epsilon`, which
    ///   the document lacks, is added to the variance, and must be a normal number in the type of the sums: 1e-18 by
    ///   default, so that both are 0 for equal elements and agree to a relative 1e-9 where √Var is above 1.
    /// * A negative axis counts from the end.
    /// * The operation also writes mean and variance, which ONNX does not return.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # use wgpu_norm::{Error, GpuContext};
    /// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
    /// let gpu = GpuContext::new().await?;
    /// use wgpu_norm::operators::{Inputs, onnx::MeanVarianceNormalization};
    ///
    /// let op = MeanVarianceNormalization::default(); // over samples, height and width
    /// let inputs = Inputs::new().with("X", &[2, 2, 1, 1], &[1.0_f32, 10.0, 3.0, 30.0]);
    /// let outputs = op.run(&gpu, &inputs).await?;
    /// let y: &[f32] = outputs.get("Y")?;
    /// assert!((y[0] + 1.0).abs() < 1e-5 && (y[3] - 1.0).abs() < 1e-5);
    /// # Ok::<(), Error>(()) }).unwrap();
    /// ```
    MeanVarianceNormalization {
    } {
        /// Attribute `axes`: the axes over which mean and variance are taken; 0, 2 and 3 by default.
        axes: Vec<i64> = vec![0, 2, 3],
        /// Added to the variance; finite, normal and above 0; 1e-18 by default.
        epsilon: f32 = 1e-18,
    }
    /// The document's default axes.
    default
    inputs(_) { X: Src }
    outputs(_) { Y: Dst }
}

impl Definition for MeanVarianceNormalization {
    fn define(&self, given: &Given<'_>) -> Result<Operation, Error> {
        let norm = Norm::axes(&self.axes, &[]);
        given.operation_with_sums(norm, Forward::default(), self.epsilon)
    }
}
