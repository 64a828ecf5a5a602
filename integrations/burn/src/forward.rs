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
    fn problem<const D: usize>(&self, way: Way, src: &Tensor<D>, pass: Pass) -> Problem {
        let params = self.gamma.as_ref().or(self.beta.as_ref());
        Problem {
            way,
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

    /// The problem, if it and its gradient where there may be one can be run on the tensor's device; else why not.
    fn runnable<const D: usize>(&self, src: &Tensor<D>, pass: Pass) -> Result<Problem, String> {
        let device = src.device();
        let way = choose(&device)?;
        let cube = cube_device(&device).ok_or("the device is none of wgpu's")?;
        let problem = self.problem(way, src, pass);
        let mut needed = vec![problem.clone()];
        if device.is_autodiff() {
            match pass {
                Pass::Inference => {
                    return Err("a layer by its running statistics is differentiated".to_owned());
                }
                _ => {
                    needed.extend([true, false].map(|params| problem.of(Pass::Backward { params })))
                }
            }
        }
        for problem in needed {
            prepare(&cube, &problem).map_err(|error| error.to_string())?;
        }
        Ok(problem)
    }

    /// The same; what cannot be run is said and counted.
    fn run_by<const D: usize>(&self, src: &Tensor<D>, pass: Pass) -> Option<Problem> {
        self.runnable(src, pass)
            .inspect_err(|reason| {
                say(reason);
                count(Way::Burn);
            })
            .ok()
    }

    /// The layer by the statistics of src, with a residual where it takes one; `None` where Burn has to run it.
    pub fn forward<const D: usize>(
        &self,
        src: &Tensor<D>,
        residual: Option<&Tensor<D>>,
    ) -> Option<Output<D>> {
        let problem = self.run_by(src, Pass::Forward)?;
        let of_channels = matches!(self.norm, Norm::Batch { .. });
        let (dst, mean, variance, _) = <Dispatch as Norms>::norm_forward(
            src.clone().into_dispatch(),
            maybe(residual),
            maybe(self.gamma.as_ref()),
            maybe(self.beta.as_ref()),
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
        residual: Option<&Tensor<D>>,
        mean: Tensor<1>,
        variance: Tensor<1>,
    ) -> Option<Tensor<D>> {
        let problem = self.run_by(src, Pass::Inference)?;
        let statistics = problem.statistics();
        let [mean, variance] = [mean, variance].map(|t| t.cast(statistics).into_dispatch());
        let dst = <Dispatch as Norms>::norm_inference(
            src.clone().into_dispatch(),
            maybe(residual),
            mean,
            variance,
            maybe(self.gamma.as_ref()),
            maybe(self.beta.as_ref()),
            problem,
        );
        Some(Tensor::from_dispatch(dst))
    }
}

fn maybe<const D: usize>(tensor: Option<&Tensor<D>>) -> Maybe<Dispatch> {
    match tensor {
        Some(tensor) => Maybe::Some(tensor.clone().into_dispatch()),
        None => Maybe::None,
    }
}
