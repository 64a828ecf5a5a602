//! `MeanVarianceNormalization`.

use crate::operators::*;

/// ONNX's [`MeanVarianceNormalization`](https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html) of opset
/// 13: Y = (X − Mean) / √Var, with the mean and the biased variance over `axes`.
///
/// | index | input | type | shape | in plans and errors |
/// |---|---|---|---|---|
/// | 0 | `X` | T | rank 1 to 8 | `src` |
///
/// | index | output | type | shape | in plans |
/// |---|---|---|---|---|
/// | 0 | `Y` | T | X's | `dst` |
///
/// # Differences
///
/// * The document's function body adds 1e-9 to the deviation: Y = (X − Mean) / (√Var + 1e-9). Here `epsilon`, which the
///   document lacks, is added to the variance, and must be a normal number in the type of the sums: 1e-18 by default,
///   so that both are 0 for equal elements and agree to a relative 1e-9 where √Var is above 1.
/// * A negative axis counts from the end.
/// * The operation also writes mean and variance, which ONNX does not return.
///
/// ```
/// # pollster::block_on(async {
/// # use wgpu_norm::{Error, GpuContext};
/// # if let Err(Error::NoAdapter { .. }) = GpuContext::new().await { return Ok(()) }
/// let gpu = GpuContext::new().await?;
/// use wgpu_norm::operators::onnx::MeanVarianceNormalization;
///
/// let op = MeanVarianceNormalization::default(); // over samples, height and width
/// let y = op.forward(&gpu, &[2, 2, 1, 1], &[1.0_f32, 10.0, 3.0, 30.0]).await?;
/// assert!((y[0] + 1.0).abs() < 1e-5 && (y[3] - 1.0).abs() < 1e-5);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MeanVarianceNormalization {
    /// Attribute `axes`: the axes over which mean and variance are taken; 0, 2 and 3 by default.
    pub axes: Vec<i64>,
    /// Added to the variance; finite, normal and above 0; 1e-18 by default.
    pub epsilon: f32,
}

impl Default for MeanVarianceNormalization {
    /// The document's default axes.
    fn default() -> Self {
        Self {
            axes: vec![0, 2, 3],
            epsilon: 1e-18,
        }
    }
}

impl MeanVarianceNormalization {
    /// The operator as an operation.
    ///
    /// # Errors
    ///
    /// [`Error::Epsilon`], and errors in the shape and the axes.
    pub fn operation<T: ParamOf<T>>(&self, shape: &[usize]) -> Result<Operation, Error> {
        let norm = Norm::Axes {
            axes: self.axes.clone(),
            param_axes: vec![],
            centered: true,
        };
        let pass = Forward::default();
        operation::<T, T, T::Sum>(norm, pass, shape, self.epsilon, (false, false))
    }

    /// Computes Y from X in host memory.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::run_into`].
    pub async fn forward<T: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        shape: &[usize],
        x: &[T],
    ) -> Result<Vec<T>, Error> {
        let call = Call::new(self.operation::<T>(shape)?, x);
        Ok(call.run::<T, T, T::Sum>(gpu).await?.dst())
    }
}
