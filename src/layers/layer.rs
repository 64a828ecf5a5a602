//! The code that all layers share.

use super::args::{Params, fingerprint};
use super::{BackwardArgs, ForwardArgs, InferenceArgs, Output};
use crate::call::{Call, Grads};
use crate::context::GpuContext;
use crate::element::{DType, DTypes, Element, ParamOf};
use crate::error::Error;
use crate::operation::{Backward, Epilogue, Forward, Norm, Operation, Pass, Residual};
use crate::options::{Activation, check_epsilon};
use crate::tensor::Tensor;

/// The options of any layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    pub norm: Norm,
    pub epsilon: f64,
    pub zero_centered_gamma: bool,
    pub activation: Activation,
    pub backward: Backward,
}

impl Layer {
    /// A layer with epsilon 1e-5, all gradients, and no activation.
    pub const fn new(norm: Norm) -> Self {
        Self {
            norm,
            epsilon: 1e-5,
            zero_centered_gamma: false,
            activation: Activation::None,
            backward: Backward::new(),
        }
    }

    /// An error if epsilon is invalid for every element type.
    pub fn check(&self) -> Result<(), Error> {
        check_epsilon(self.epsilon, DType::F64)
    }

    /// The operation with parameters of the given ones' type, or of the type P if there are none.
    fn operation<T: Element, P: Element>(
        &self,
        pass: impl Into<Pass>,
        shape: &[usize],
        params: Params<'_>,
        residual: Residual,
    ) -> Result<Operation, Error> {
        let types = DTypes::from((T::DTYPE, params.dtype(P::DTYPE)?));
        let [gamma, beta, gate] = params.given();
        Ok(Operation::new(self.norm.clone(), pass, shape, types)
            .with_epsilon(self.epsilon)
            .with_params(gamma, beta)
            .with_gate(gate)
            .with_zero_centered_gamma(self.zero_centered_gamma)
            .with_epilogue(Epilogue::new(residual, self.activation)))
    }

    pub fn forward_call<'a, T: Element>(
        &self,
        args: &'a ForwardArgs<'_, T>,
    ) -> Result<Call<'a>, Error> {
        let running = args.running.as_ref();
        let pass = Forward {
            keep_statistics: args.keep_statistics,
            running: running.map(|running| running.update),
            ..Forward::default()
        };
        let (residual, added) = match (args.residual_before, args.residual_after) {
            (Some(_), Some(_)) => {
                let expected = "one before the layer or one after it";
                return Err(Error::argument(Tensor::Residual.name(), expected, "both"));
            }
            (Some(added), None) => (Residual::Before, Some(added)),
            (None, Some(added)) => (Residual::After, Some(added)),
            (None, None) => (Residual::None, None),
        };
        let operation = self.operation::<T, T>(pass, args.shape, args.params, residual)?;
        let call = Call::new(operation, args.src)
            .with(Tensor::Residual, added)
            .with(Tensor::RunningMean, running.map(|running| &*running.mean))
            .with(
                Tensor::RunningVariance,
                running.map(|running| &*running.variance),
            );
        Ok(with_params(call, args.params))
    }

    fn inference_call<'a, T: Element>(
        &self,
        args: &InferenceArgs<'a, T>,
    ) -> Result<Call<'a>, Error> {
        let residual = match args.residual_after {
            Some(_) => Residual::After,
            None => Residual::None,
        };
        let operation =
            self.operation::<T, T>(Pass::Inference, args.shape, args.params, residual)?;
        let statistics = args.statistics.statistics(&operation)?;
        let mut call = Call::new(operation, args.src).with(Tensor::Residual, args.residual_after);
        for (tensor, values) in statistics {
            call = call.with(tensor, values);
        }
        Ok(with_params(call, args.params))
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
        let mut params = args.params;
        let operation = self.operation::<T, P>(self.backward, args.shape, params, residual)?;
        let own = operation.types.params;
        if own != P::DTYPE {
            let expected = format!("{} elements, the type of their gradients", P::DTYPE);
            return Err(Error::argument("parameters", expected, own));
        }
        check_remembered(args, &operation)?;
        if let Some((dtype, beta)) = params.beta
            && !operation.has_tensor(Tensor::Beta)
        {
            let elements = beta.len() / dtype.size() as usize;
            operation.check_param(Tensor::Beta, elements)?;
            params.beta = None;
        }
        let statistics = args.saved.statistics(&operation)?;
        let mut call = Call::new(operation, args.src)
            .with(Tensor::DiffDst, args.diff_dst)
            .with(Tensor::Mask, args.saved.mask);
        for (tensor, values) in statistics {
            call = call.with(tensor, values);
        }
        Ok(with_params(call, params))
    }

    pub async fn forward<T: Element>(
        &self,
        gpu: &GpuContext,
        args: ForwardArgs<'_, T>,
    ) -> Result<Output<T, T::Sum>, Error> {
        let results = self.forward_call(&args)?.run::<T, T, T::Sum>(gpu).await?;
        Ok(Output::new(results, args))
    }

    pub async fn infer<T: Element>(
        &self,
        gpu: &GpuContext,
        args: InferenceArgs<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let call = self.inference_call(&args)?;
        Ok(call.run::<T, T, T::Sum>(gpu).await?.dst())
    }

    pub async fn backward<T: Element, P: ParamOf<T>>(
        &self,
        gpu: &GpuContext,
        args: BackwardArgs<'_, T, P>,
    ) -> Result<Grads<T, P>, Error> {
        let call = self.backward_call(&args)?;
        Ok(call.run::<T, P, T::Sum>(gpu).await?.grads())
    }
}

fn with_params<'a>(call: Call<'a>, params: Params<'a>) -> Call<'a> {
    let mut call = call;
    for (tensor, param) in params.all() {
        call = call.with(tensor, param.map(|(_, bytes)| bytes));
    }
    call
}

/// An error if the gradient is given other parameters than the forward pass, or src where that normalized its sum with
/// a residual, or if nobody says that there was no beta.
fn check_remembered<T: Element, P>(
    args: &BackwardArgs<'_, T, P>,
    operation: &Operation,
) -> Result<(), Error> {
    if args
        .saved
        .sum
        .is_some_and(|sum| sum != fingerprint(args.src))
    {
        let expected = "the forward pass's `sum`, since a residual was added before the layer";
        return Err(Error::argument("src", expected, "another tensor"));
    }
    if let Some(given) = args.saved.given {
        for ((tensor, param), was) in args.params.all().into_iter().zip(given) {
            if param.is_some() != was {
                let (expected, got) = if was {
                    ("the forward pass's", "none")
                } else {
                    ("none, as the forward pass had none", "one")
                };
                return Err(Error::argument(tensor.name(), expected, got));
            }
        }
        return Ok(());
    }
    let known = args.params.beta.is_some() || args.without_beta || !operation.norm.has_beta();
    let with_beta = operation.clone().with_params(operation.gamma, true);
    if !known && with_beta.has_tensor(Tensor::Beta) {
        let expected = "the forward pass's, or `without_beta` if it had none";
        return Err(Error::argument(Tensor::Beta.name(), expected, "none"));
    }
    Ok(())
}

/// Defines a layer on a GPU and its options, with `infer` if it supports given statistics.
macro_rules! layer {
    ($(#[$doc:meta])* $Layer:ident, $Options:ident $(, $infer:ident)?) => {
        #[doc = concat!("The options of a [`", stringify!($Layer), "`].")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Options(pub(crate) $crate::layers::layer::Layer);

        impl $Options {
            /// Sets epsilon, which is added to the variance or to the mean of squares; by default 1e-5. It must be
            /// finite, normal and above 0, also as f32 unless the data are f64.
            #[must_use]
            pub fn epsilon(mut self, epsilon: f64) -> Self {
                self.0.epsilon = epsilon;
                self
            }

            /// Sets whether gamma is stored less 1, as in Gemma or in adaptive norms, which scale by 1 + gamma.
            #[must_use]
            pub fn zero_centered_gamma(mut self, zero_centered_gamma: bool) -> Self {
                self.0.zero_centered_gamma = zero_centered_gamma;
                self
            }

            /// Sets whether the parameters' gradients are computed, as they are by default; not those of a frozen
            /// layer.
            #[must_use]
            pub fn param_grads(mut self, param_grads: bool) -> Self {
                self.0.backward.param_grads = param_grads;
                self
            }

            /// Sets the activation that follows the layer, in the forward pass and in the gradient; by default none.
            #[must_use]
            pub fn activation(mut self, activation: $crate::Activation) -> Self {
                self.0.activation = activation;
                self
            }
        }

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
                options.0.check()?;
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
            pub async fn forward<T: $crate::Element>(
                &self,
                args: $crate::ForwardArgs<'_, T>,
            ) -> Result<$crate::Output<T, T::Sum>, $crate::Error> {
                self.options.0.forward(&self.gpu, args).await
            }

            $(
                /// Computes the layer's output from given statistics.
                ///
                /// # Errors
                ///
                /// The errors of all calls.
                pub async fn $infer<T: $crate::Element>(
                    &self,
                    args: $crate::InferenceArgs<'_, T>,
                ) -> Result<Vec<T>, $crate::Error> {
                    self.options.0.infer(&self.gpu, args).await
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
                self.options.0.backward(&self.gpu, args).await
            }
        }
    };
}
pub(super) use layer;
