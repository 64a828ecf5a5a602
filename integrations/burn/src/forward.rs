//! A layer's passes on Burn's tensors, or the reason why Burn has to run them.

use crate::ops::{Maybe, Norms};
use crate::problem::{Norm, Pass, Problem};
use crate::run::prepare;
use crate::way::{Way, choose, count, cube_device, say};
use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

/// A layer with its parameters, as they are at the moment.
pub struct Layer {
    pub norm: Norm,
    pub gamma: Option<Tensor<1>>,
    pub beta: Option<Tensor<1>>,
    pub epsilon: f64,
}

/// A mean and a variance for each channel.
pub type Statistics = [Tensor<1>; 2];

/// The output, and the statistics of a layer that has a mean and a variance.
pub struct Output<const D: usize> {
    pub dst: Tensor<D>,
    pub statistics: Option<Statistics>,
}

/// What a layer is given beside its parameters.
#[derive(Clone, Copy)]
struct Given<'a, const D: usize> {
    src: &'a Tensor<D>,
    residual: Option<&'a Tensor<D>>,
    statistics: Option<&'a Statistics>,
}

impl Layer {
    /// gamma and beta, where there are any.
    fn params(&self) -> impl Iterator<Item = &Tensor<1>> {
        self.gamma.iter().chain(&self.beta)
    }

    /// The problem, if it and its gradient where there may be one can be run on the tensors' device; else why not.
    fn runnable<const D: usize>(&self, given: Given<'_, D>) -> Result<Problem, String> {
        let src = given.src;
        let device = src.device();
        let launch = choose(&device)?;
        let cube = cube_device(&device).ok_or("the device is none of wgpu's")?;
        let statistics = given.statistics.into_iter().flatten();
        let others = self.params().chain(statistics).map(Tensor::device);
        let mut devices: Vec<Device> = others.chain(given.residual.map(Tensor::device)).collect();
        devices.push(device);
        // Burn differentiates what has any tensor on an autodiff device.
        let autodiff = devices.iter().any(Device::is_autodiff);
        let pass = match (given.statistics, autodiff, self.norm) {
            (Some(_), true, _) => {
                return Err("a layer by its running statistics is differentiated".to_owned());
            }
            (Some(_), false, _) | (None, false, Norm::Layer | Norm::Rms) => Pass::Inference,
            (None, ..) => Pass::Forward,
        };
        let problem = Problem {
            launch,
            norm: self.norm,
            pass,
            shape: src.dims().to_vec(),
            data: src.dtype(),
            params: self.params().next().map_or(src.dtype(), Tensor::dtype),
            gamma: self.gamma.is_some(),
            beta: self.beta.is_some(),
            epsilon: self.epsilon.to_bits(),
        };
        self.check(given, &problem)?;
        let mut needed = vec![problem.clone()];
        if autodiff {
            needed.extend([true, false].map(|params| problem.of(Pass::Backward { params })));
        }
        for problem in needed {
            prepare(&cube, &problem).map_err(|error| error.to_string())?;
        }
        Ok(problem)
    }

    /// What the kernels take for granted, an error where it does not hold: Burn knows what to do about it.
    fn check<const D: usize>(&self, given: Given<'_, D>, problem: &Problem) -> Result<(), String> {
        if problem.shape.contains(&0) {
            return Err("a tensor is empty".to_owned());
        }
        if let Some(residual) = given.residual
            && residual.dtype() != problem.data
        {
            let (got, data) = (residual.dtype(), problem.data);
            return Err(format!("the residual is of {got:?}, the input of {data:?}"));
        }
        let (params, shape) = (problem.params, problem.params_shape());
        for param in self.params() {
            let (dtype, dims) = (param.dtype(), param.dims());
            if (dtype, dims.as_slice()) != (params, shape.as_slice()) {
                return Err(format!(
                    "gamma and beta: expected {shape:?} of {params:?}, got {dims:?} of {dtype:?}"
                ));
            }
        }
        for statistic in given.statistics.into_iter().flatten() {
            let (dims, shape) = (statistic.dims(), problem.statistics_shape());
            if dims.as_slice() != shape.as_slice() {
                return Err(format!(
                    "running statistics: expected {shape:?}, got {dims:?}"
                ));
            }
        }
        Ok(())
    }

    /// The same; what cannot be run is said and counted.
    fn run_by<const D: usize>(&self, given: Given<'_, D>) -> Option<Problem> {
        self.runnable(given)
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
        let given = Given {
            src,
            residual,
            statistics: None,
        };
        let problem = self.run_by(given)?;
        if problem.pass == Pass::Inference {
            return Some(Output {
                dst: self.inference(given, problem),
                statistics: None,
            });
        }
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
                Some([mean, variance].map(Tensor::from_dispatch))
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
        statistics: &Statistics,
    ) -> Option<Tensor<D>> {
        let given = Given {
            src,
            residual,
            statistics: Some(statistics),
        };
        let problem = self.run_by(given)?;
        Some(self.inference(given, problem))
    }

    /// The output alone.
    fn inference<const D: usize>(&self, given: Given<'_, D>, problem: Problem) -> Tensor<D> {
        let dtype = problem.statistics();
        let statistics = given.statistics.cloned();
        let [mean, variance] = match statistics.map(|both| both.map(|tensor| tensor.cast(dtype))) {
            Some(both) => both.map(|tensor| maybe(Some(&tensor))),
            None => [Maybe::None, Maybe::None],
        };
        Tensor::from_dispatch(<Dispatch as Norms>::norm_inference(
            given.src.clone().into_dispatch(),
            maybe(given.residual),
            mean,
            variance,
            maybe(self.gamma.as_ref()),
            maybe(self.beta.as_ref()),
            problem,
        ))
    }
}

fn maybe<const D: usize>(tensor: Option<&Tensor<D>>) -> Maybe<Dispatch> {
    match tensor {
        Some(tensor) => Maybe::Some(tensor.clone().into_dispatch()),
        None => Maybe::None,
    }
}
