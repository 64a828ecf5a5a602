//! The code that all layers share.

use super::args::Params;
use super::{BackwardArgs, ForwardArgs, InferenceArgs, Output};
use crate::call::Call;
use crate::element::types;
use crate::options::check_epsilon;
use crate::{
    Activation, Backward, DType, Element, Epilogue, Error, Forward, GpuContext, Grads, Norm,
    Operation, ParamOf, Pass, Residual, Tensor,
};

/// The options of any layer.
pub(crate) struct Layer {
    pub norm: Norm,
    pub epsilon: f64,
    pub zero_centered_gamma: bool,
    pub activation: Activation,
    pub backward: Backward,
}

impl Layer {
    /// An error if epsilon is invalid for every element type.
    pub fn check(&self) -> Result<(), Error> {
        check_epsilon(self.epsilon, DType::F64)
    }

    fn operation<T: Element, P: ParamOf<T>>(
        &self,
        pass: impl Into<Pass>,
        shape: &[usize],
        params: Params<'_, P>,
        residual: Residual,
    ) -> Operation {
        Operation::new(self.norm.clone(), pass, shape, types::<T, P, T::Sum>())
            .with_epsilon(self.epsilon)
            .with_params(params.gamma.is_some(), params.beta.is_some())
            .with_gate(params.gate.is_some())
            .with_zero_centered_gamma(self.zero_centered_gamma)
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
        let residual = self.residual(args.residual.is_some());
        let operation = self.operation::<T, P>(pass, args.shape, args.params, residual);
        Call::new(operation, args.src)
            .params(args.params.gamma, args.params.beta)
            .with(Tensor::Gate, args.params.gate)
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
        let residual = self.residual(args.residual.is_some());
        let operation = self.operation::<T, P>(Pass::Inference, args.shape, args.params, residual);
        let mut call = Call::new(operation, args.src)
            .params(args.params.gamma, args.params.beta)
            .with(Tensor::Gate, args.params.gate)
            .with(Tensor::Residual, args.residual);
        for &tensor in self.norm.statistics() {
            call = call.with(tensor, args.statistics.statistic(tensor));
        }
        call
    }

    /// Also checks the length of a beta on which no result depends.
    pub fn backward_call<'a, T: Element, P: ParamOf<T>>(
        &self,
        args: &BackwardArgs<'a, T, P>,
    ) -> Result<Call<'a>, Error> {
        let residual = match args.saved.mask {
            Some(_) if self.activation == Activation::None => {
                let expected = "none without an activation: diff_dst is the residual's gradient";
                return Err(Error::argument(Tensor::Mask.name(), expected, "one"));
            }
            Some(_) => Residual::After,
            None => Residual::None,
        };
        let operation = self.operation::<T, P>(self.backward, args.shape, args.params, residual);
        let Params {
            gamma, beta, gate, ..
        } = args.params;
        let mut bound = operation.bound().into_iter();
        let reads_beta = bound.any(|slot| slot.tensor == Tensor::Beta);
        if let Some(beta) = beta.filter(|_| !reads_beta) {
            operation.check_param(Tensor::Beta, beta.len())?;
        }
        let mut call = Call::new(operation, args.src)
            .with(Tensor::DiffDst, args.diff_dst)
            .params(gamma, beta.filter(|_| reads_beta))
            .with(Tensor::Gate, gate)
            .with(Tensor::Mask, args.saved.mask);
        for &tensor in self.norm.statistics() {
            call = call.with(tensor, args.saved.statistic(tensor));
        }
        Ok(call)
    }

    pub async fn forward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: ForwardArgs<'_, T, P>,
    ) -> Result<Output<T, T::Sum>, Error> {
        args.params.check()?;
        let results = self.forward_call(&args).run::<T, P, T::Sum>(gpu).await?;
        Ok(Output::new(results, args.running))
    }

    pub async fn infer<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: InferenceArgs<'_, T, P>,
    ) -> Result<Vec<T>, Error> {
        args.params.check()?;
        let mut results = self.inference_call(&args).run::<T, P, T::Sum>(gpu).await?;
        Ok(results.dst())
    }

    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        args.params.check()?;
        let call = self.backward_call(&args)?;
        Ok(call.run::<T, P, T::Sum>(gpu).await?.grads())
    }
}

/// Defines a setter for each option.
macro_rules! setters {
    ($Options:ident: $($(#[$doc:meta])* $option:ident: $Type:ty,)*) => {
        impl $Options {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $option(self, $option: $Type) -> Self {
                    Self { $option, ..self }
                }
            )*
        }
    };
}
pub(super) use setters;

/// Defines a layer on a GPU, with `infer` if it supports given statistics.
macro_rules! layer {
    ($(#[$doc:meta])* $Layer:ident, $Options:ident $(, $infer:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $Layer {
            gpu: $crate::GpuContext,
            options: $Options,
        }

        /// Each call uploads, runs and reads back. The first poll uploads, and compiles the kernels that no earlier
        /// call has needed, which can take seconds on a software driver. The wait for the GPU that follows does not
        /// block the executor. The last poll copies the results out.
        ///
        /// # Errors
        ///
        /// Each call checks all arguments before it uploads anything. Errors are: lengths and ranks that do not fit the
        /// shape, a shape that the options do not allow, sizes that overflow or exceed the adapter's limits, an element
        /// type that the adapter does not support, and given statistics whose variance + epsilon is infinite or not
        /// above 0. After that, memory can run out and the device can be lost.
        impl $Layer {
            /// Makes the layer on a context.
            ///
            /// # Errors
            ///
            /// [`Error::Epsilon`](crate::Error::Epsilon) if epsilon is not finite, normal and above 0. The tighter
            /// bounds for f32 are checked when the element type is known.
            pub fn new(
                gpu: &$crate::GpuContext,
                options: $Options,
            ) -> Result<Self, $crate::Error> {
                options.layer().check()?;
                Ok(Self {
                    gpu: gpu.clone(),
                    options,
                })
            }

            /// Computes the layer's output, and the statistics of src.
            ///
            /// # Errors
            ///
            /// The errors of all calls.
            pub async fn forward<T: $crate::Element, P: $crate::ParamOf<T>>(
                &self,
                args: $crate::ForwardArgs<'_, T, P>,
            ) -> Result<$crate::Output<T, T::Sum>, $crate::Error> {
                self.options.layer().forward(&self.gpu, args).await
            }

            $(
                /// Computes the layer's output from given statistics.
                ///
                /// # Errors
                ///
                /// The errors of all calls.
                pub async fn $infer<T: $crate::Element, P: $crate::ParamOf<T>>(
                    &self,
                    args: $crate::InferenceArgs<'_, T, P>,
                ) -> Result<Vec<T>, $crate::Error> {
                    self.options.layer().infer(&self.gpu, args).await
                }
            )?

            /// Computes the gradients.
            ///
            /// # Errors
            ///
            /// The errors of all calls.
            pub async fn backward<T: $crate::Element, P: $crate::ParamOf<T>>(
                &self,
                args: $crate::BackwardArgs<'_, T, P>,
            ) -> Result<$crate::Grads<T, P>, $crate::Error> {
                self.options.layer().backward(&self.gpu, args).await
            }
        }
    };
}
pub(super) use layer;
