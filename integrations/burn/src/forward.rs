//! A layer's passes on Burn's tensors, or the reason why Burn has to run them.

use crate::ops::{Maybe, Norms};
use crate::problem::{Norm, Pass, Problem};
use crate::run::prepare;
use crate::way::{Way, choose, count, cube_device, say};
use burn::backend::Dispatch;
use burn::tensor::Tensor;

/// A layer with its parameters, as they are at the moment.
pub struct Layer {
    pub norm: Norm,
    pub gamma: Option<Tensor<1>>,
    pub beta: Option<Tensor<1>>,
    pub epsilon: f64,
}

/// The output, and the statistics of a layer that has a mean and a variance.
pub struct Output<const D: usize> {
    pub dst: Tensor<D>,
    pub statistics: Option<(Tensor<1>, Tensor<1>)>,
}

impl Layer {
    fn problem<const D: usize>(&self, src: &Tensor<D>, pass: Pass) -> Problem {
        let params = self.gamma.as_ref().or(self.beta.as_ref());
        Problem {
            norm: self.norm,
            pass,
            shape: src.dims().to_vec(),
            data: src.dtype(),
            params: params.map_or(src.dtype(), |params| params.dtype()),
            gamma: self.gamma.is_some(),
            beta: self.beta.is_some(),
            epsilon: self.epsilon.to_bits(),
        }
    }

    /// Whether a problem, and its gradient where there may be one, can be run on a tensor's device; says why not.
    fn can_run<const D: usize>(&self, src: &Tensor<D>, problem: &Problem) -> bool {
        let device = src.device();
        let found = choose(&device).and_then(|_| {
            let cube = cube_device(&device).ok_or("the device is none of wgpu's".to_owned())?;
            let of = |problem: &Problem| {
                let plan = prepare(&cube, problem);
                plan.map_err(|error| error.to_string())
            };
            of(problem)?;
            if device.is_autodiff() && problem.pass == Pass::Forward {
                of(&problem.of(Pass::Backward { params: true }))?;
                of(&problem.of(Pass::Backward { params: false }))?;
            }
            Ok(())
        });
        if let Err(reason) = &found {
            say(reason);
            count(Way::Burn);
        }
        found.is_ok()
    }

    /// The layer by the statistics of src; `None` where Burn has to run it.
    pub fn forward<const D: usize>(&self, src: &Tensor<D>) -> Option<Output<D>> {
        let problem = self.problem(src, Pass::Forward);
        if !self.can_run(src, &problem) {
            return None;
        }
        let of_channels = matches!(self.norm, Norm::Batch { .. });
        let (dst, mean, variance) = <Dispatch as Norms>::norm_forward(
            src.clone().into_dispatch(),
            maybe(&self.gamma),
            maybe(&self.beta),
            problem,
        );
        let statistics = match variance {
            Maybe::Some(variance) if of_channels => {
                Some((Tensor::from_dispatch(mean), Tensor::from_dispatch(variance)))
            }
            _ => None,
        };
        Some(Output {
            dst: Tensor::from_dispatch(dst),
            statistics,
        })
    }

    /// The layer by given statistics; `None` where Burn has to run it: what may be differentiated, too.
    pub fn infer<const D: usize>(
        &self,
        src: &Tensor<D>,
        mean: Tensor<1>,
        variance: Tensor<1>,
    ) -> Option<Tensor<D>> {
        let problem = self.problem(src, Pass::Inference);
        if src.device().is_autodiff() {
            say("a layer by its running statistics is differentiated");
            count(Way::Burn);
            return None;
        }
        if !self.can_run(src, &problem) {
            return None;
        }
        let statistics = problem.statistics();
        let [mean, variance] = [mean, variance].map(|t| t.cast(statistics).into_dispatch());
        let dst = <Dispatch as Norms>::norm_inference(
            src.clone().into_dispatch(),
            mean,
            variance,
            maybe(&self.gamma),
            maybe(&self.beta),
            problem,
        );
        Some(Tensor::from_dispatch(dst))
    }
}

fn maybe(tensor: &Option<Tensor<1>>) -> Maybe<Dispatch> {
    match tensor {
        Some(tensor) => Maybe::Some(tensor.clone().into_dispatch()),
        None => Maybe::None,
    }
}
