//! A layer on Burn's tensors, or the reason why Burn has to run it.

use crate::device::cube_device;
use crate::ops::{Norms, Slot};
use crate::plans::{Pass, Prepared, prepare};
use crate::way::{Way, choose, count, say};
use burn::backend::{Dispatch, DispatchAutodiffContext, DispatchTensor, TensorMetadata};
use burn::tensor::{DType as BurnDType, Tensor};
use std::sync::Arc;
use wgpu_norm::support::Need;
use wgpu_norm::{self as norm, Tensor as Role};
use wgpu_norm::{Activation, DType, DTypes, Epilogue, Forward, Norm, Operation, Residual};

/// A layer with its present parameters.
pub struct Layer<const P: usize> {
    norm: Norm,
    gamma: Option<Tensor<P>>,
    zero_centered_gamma: bool,
    beta: Option<Tensor<P>>,
    epsilon: f64,
}

/// Batch norm's arguments besides src.
#[derive(Default)]
pub struct Given<'a, const D: usize> {
    pub activation: Activation,
    /// Added to the layer's output before the activation. With a residual there must be an activation.
    pub residual: Option<&'a Tensor<D>>,
    /// Statistics to use in place of src's.
    pub statistics: Option<[Tensor<1>; 2]>,
}

/// The tensors that a layer writes.
pub struct Output<const D: usize> {
    pub dst: Tensor<D>,
    /// In the layer's order, if they are kept.
    pub statistics: Vec<DispatchTensor>,
}

/// The tensors that a layer reads.
type Inputs = Vec<(Role, DispatchTensor)>;

impl<const P: usize> Layer<P> {
    pub fn new(
        norm: Norm,
        gamma: Option<Tensor<P>>,
        beta: Option<Tensor<P>>,
        epsilon: f64,
    ) -> Self {
        Self {
            norm,
            gamma,
            zero_centered_gamma: false,
            beta,
            epsilon,
        }
    }

    /// The same layer with a gamma that is stored less 1.
    pub fn with_zero_centered_gamma(self) -> Self {
        Self {
            zero_centered_gamma: true,
            ..self
        }
    }

    /// The layer's output; `None` if Burn has to run it.
    pub fn forward<const D: usize>(self, src: &Tensor<D>) -> Option<Tensor<D>> {
        Some(self.run(src, Given::default())?.dst)
    }

    /// The same with further arguments; `None` if Burn has to run it, which is logged and counted.
    pub fn run<const D: usize>(self, src: &Tensor<D>, given: Given<'_, D>) -> Option<Output<D>> {
        let prepared = self.prepared(src, given).inspect_err(|reason| {
            say(reason);
            count(Way::Burn);
        });
        let (inputs, prepared) = prepared.ok()?;
        let inputs = inputs.into_iter();
        let inputs = inputs.map(|(role, tensor)| Slot::Numbers(role, tensor));
        let mut dst = None;
        let mut statistics = Vec::new();
        for slot in Dispatch::norm(inputs.collect(), prepared) {
            match slot {
                Slot::Numbers(Role::Dst, tensor) => dst = Some(Tensor::from_dispatch(tensor)),
                Slot::Numbers(_, tensor) => statistics.push(tensor),
                Slot::Bits(..) | Slot::Empty => {}
            }
        }
        Some(Output {
            dst: dst?,
            statistics,
        })
    }

    /// The tensors that the layer reads, and its plan, with that of its gradient if it may be differentiated; else the
    /// reason why wgpu-norm cannot run it.
    fn prepared<const D: usize>(
        self,
        src: &Tensor<D>,
        given: Given<'_, D>,
    ) -> Result<(Inputs, Arc<Prepared>), String> {
        let launch = choose(&src.device())?;
        let device = cube_device(&src.device()).ok_or("the device is not one of wgpu's")?;
        if src.dims().contains(&0) {
            return Err("a tensor is empty".to_owned());
        }
        let (gamma, beta) = (self.gamma.is_some(), self.beta.is_some());
        let (norm, epsilon) = (self.norm.clone(), self.epsilon);
        let zero_centered_gamma = self.zero_centered_gamma;
        let params = self.gamma.as_ref().or(self.beta.as_ref());
        let (data, params) = (src.dtype(), params.map_or(src.dtype(), Tensor::dtype));
        let epilogue = match given.residual {
            Some(_) => Epilogue::new(Residual::After, given.activation),
            None => Epilogue::new(Residual::None, given.activation),
        };
        let of_src = given.statistics.is_none();
        let inputs = self.inputs(src, given);
        // Burn differentiates whatever has any tensor on an autodiff device.
        let differentiated = inputs
            .iter()
            .any(|(_, tensor)| tensor.autodiff != DispatchAutodiffContext::Disabled);
        let pass = match (of_src, differentiated) {
            (false, true) => {
                return Err("a layer that uses its running statistics is differentiated".to_owned());
            }
            (false, false) => norm::Pass::Inference,
            (true, false) if !keeps_statistics(&norm) => {
                Forward::default().without_statistics().into()
            }
            (true, _) => Forward::default().into(),
        };
        let types = DTypes::from((dtype(data)?, dtype(params)?));
        let operation = Operation::new(norm, pass, &src.dims(), types)
            .with_epsilon(epsilon)
            .with_params(gamma, beta)
            .with_zero_centered_gamma(zero_centered_gamma)
            .with_epilogue(epilogue);
        let pass = Pass {
            device,
            launch,
            operation,
            data,
            params,
            differentiated,
        };
        let prepared = prepare(pass).map_err(|error| error.to_string())?;
        check(&inputs, &prepared)?;
        Ok((inputs, prepared))
    }

    /// The tensors in the order of an operation's.
    fn inputs<const D: usize>(self, src: &Tensor<D>, given: Given<'_, D>) -> Inputs {
        let accumulator = match src.dtype() {
            BurnDType::F64 => BurnDType::F64,
            _ => BurnDType::F32,
        };
        let statistics = given.statistics.into_iter().flatten();
        let statistics = statistics.map(|tensor| tensor.cast(accumulator).into_dispatch());
        let statistics = self.norm.statistics().iter().copied().zip(statistics);
        let params = [(Role::Gamma, self.gamma), (Role::Beta, self.beta)];
        let params = params
            .into_iter()
            .filter_map(|(role, param)| Some((role, param?.into_dispatch())));
        let residual = given.residual.map(|residual| (Role::Residual, residual));
        let whole = [(Role::Src, src)].into_iter().chain(residual);
        whole
            .map(|(role, tensor)| (role, tensor.clone().into_dispatch()))
            .chain(statistics)
            .chain(params)
            .collect()
    }
}

/// Whether a layer always keeps the statistics of src, even if nobody asks for them.
fn keeps_statistics(norm: &Norm) -> bool {
    let slots = Operation::slots(norm, &Forward::default().into());
    let mut always = slots.iter().filter(|slot| slot.need == Need::Always);
    always.any(|slot| norm.statistics().contains(&slot.tensor))
}

/// An error if tensors do not meet the plan's assumptions: Burn knows how to handle them.
fn check(inputs: &Inputs, prepared: &Prepared) -> Result<(), String> {
    for ((role, tensor), (known, spec)) in inputs.iter().zip(&prepared.inputs) {
        let (shape, dtype) = (tensor.shape(), tensor.dtype());
        if (role, &shape, dtype) != (known, &spec.shape, spec.dtype) {
            let (role, expected) = (role.name(), spec.shape.as_slice());
            return Err(format!(
                "{role}: expected {expected:?} of {:?}, got {:?} of {dtype:?}",
                spec.dtype,
                shape.as_slice(),
            ));
        }
    }
    Ok(())
}

/// The library's name of an element type; an error for a type that no layer supports.
fn dtype(dtype: BurnDType) -> Result<DType, String> {
    match dtype {
        BurnDType::F32 | BurnDType::Flex32 => Ok(DType::F32),
        BurnDType::F16 => Ok(DType::F16),
        BurnDType::BF16 => Ok(DType::Bf16),
        BurnDType::F64 => Ok(DType::F64),
        other => Err(format!(
            "element type: expected f32, flex32, f16, bf16 or f64, got {other:?}"
        )),
    }
}
