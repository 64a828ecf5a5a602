//! The layers, called on tensors in host memory.

mod args;
mod batch_norm;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod rms_norm;

pub use args::{
    BackwardArgs, ForwardArgs, InferenceArgs, Output, RunningStatistics, Statistics, StatisticsRef,
};
pub use batch_norm::{BatchNormOptions, GpuBatchNorm};
pub use group_norm::{GpuGroupNorm, GroupNormOptions};
pub use instance_norm::{GpuInstanceNorm, InstanceNormOptions};
pub use layer_norm::{GpuLayerNorm, LayerNormOptions};
pub use rms_norm::{GpuRmsNorm, RmsNormOptions};

use crate::call::Call;
use crate::element::types;
use crate::options::check_epsilon;
use crate::{
    Activation, Backward, DType, Element, Epilogue, Error, Forward, GpuContext, Grads, Norm,
    Operation, ParamOf, Pass, Residual, Tensor, geometry,
};

/// What the options of a layer say, whichever layer it is.
pub(crate) struct Layer {
    pub norm: Norm,
    pub epsilon: f64,
    pub activation: Activation,
    pub backward: Backward,
}

impl Layer {
    /// An error where no element type can do with epsilon.
    fn check(&self) -> Result<(), Error> {
        check_epsilon(self.epsilon, DType::F64)
    }

    fn operation<T: Element, P: ParamOf<T>>(
        &self,
        pass: impl Into<Pass>,
        shape: &[usize],
        (gamma, beta): (bool, bool),
        residual: Residual,
    ) -> Operation {
        Operation::new(self.norm.clone(), pass, shape, types::<T, P, T::Sum>())
            .with_epsilon(self.epsilon)
            .with_params(gamma, beta)
            .with_epilogue(Epilogue::new(residual, self.activation))
    }

    fn residual(&self, is_given: bool) -> Residual {
        match (is_given, self.norm.is_over_rows()) {
            (false, _) => Residual::None,
            (true, true) => Residual::Before,
            (true, false) => Residual::After,
        }
    }

    pub fn forward_call<'a, T: Element, P: ParamOf<T>>(
        &self,
        args: &'a ForwardArgs<'_, T, P>,
    ) -> Call<'a> {
        let running = args.running.as_ref();
        let pass = Forward {
            keep_statistics: args.keep_statistics,
            running: running.map(|running| running.update),
            ..Forward::default()
        };
        let params = (args.gamma.is_some(), args.beta.is_some());
        let residual = self.residual(args.residual.is_some());
        let operation = self.operation::<T, P>(pass, args.shape, params, residual);
        Call::new(operation, args.src)
            .params(args.gamma, args.beta)
            .with(Tensor::Residual, args.residual)
            .statistics(
                running.map(|running| &*running.mean),
                running.map(|running| &*running.variance),
            )
    }

    fn inference_call<'a, T: Element, P: ParamOf<T>>(
        &self,
        args: &InferenceArgs<'a, T, P>,
    ) -> Call<'a> {
        let params = (args.gamma.is_some(), args.beta.is_some());
        let residual = self.residual(args.residual.is_some());
        let operation = self.operation::<T, P>(Pass::Inference, args.shape, params, residual);
        let call = Call::new(operation, args.src)
            .params(args.gamma, args.beta)
            .with(Tensor::Residual, args.residual);
        self.with_statistics(call, &args.statistics)
    }

    /// A beta on which no result depends must be as long as it would have to be.
    pub fn backward_call<'a, T: Element, P: ParamOf<T>>(
        &self,
        args: &BackwardArgs<'a, T, P>,
    ) -> Result<Call<'a>, Error> {
        let params = (args.gamma.is_some(), args.beta.is_some());
        let residual = match args.mask {
            Some(_) => Residual::After,
            None => Residual::None,
        };
        let operation = self.operation::<T, P>(self.backward, args.shape, params, residual);
        let reads_beta = operation.epilogue.is_recomputed();
        if let Some(beta) = args.beta.filter(|_| !reads_beta) {
            operation.check()?;
            let shape = self.norm.params_shape(args.shape);
            let len = shape.iter().map(|&size| size as u64).product();
            geometry::check_length(Tensor::Beta.name(), len, beta.len())?;
        }
        let call = Call::new(operation, args.src)
            .with(Tensor::DiffDst, args.diff_dst)
            .params(args.gamma, args.beta.filter(|_| reads_beta))
            .with(Tensor::Mask, args.mask);
        Ok(self.with_statistics(call, &args.statistics))
    }

    fn with_statistics<'a, S: Element>(
        &self,
        mut call: Call<'a>,
        statistics: &StatisticsRef<'a, S>,
    ) -> Call<'a> {
        for &tensor in self.norm.statistics() {
            call = call.with(tensor, statistics.of(tensor));
        }
        call
    }

    async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: ForwardArgs<'_, T, P>,
    ) -> Result<Output<T, T::Sum>, Error> {
        let results = self.forward_call(&args).run::<T, P, T::Sum>(gpu).await?;
        Ok(Output::new(results, args.running))
    }

    async fn infer<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: InferenceArgs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        let mut results = self.inference_call(&args).run::<T, P, T::Sum>(gpu).await?;
        Ok(results.dst())
    }

    async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let call = self.backward_call(&args)?;
        Ok(call.run::<T, P, T::Sum>(gpu).await?.grads())
    }
}
