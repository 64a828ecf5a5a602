//! A layer on Burn's tensors, or the reason why Burn has to run it.

use crate::device::cube_device;
use crate::ops::{Norms, Slot};
use crate::plans::{Pass, Prepared, prepare};
use crate::way::{Way, choose, count, say};
use burn::backend::{Dispatch, DispatchAutodiffContext, DispatchTensor, TensorMetadata};
use burn::tensor::{DType as BurnDType, Tensor};
use std::sync::Arc;
use wgpu_norm::{self as norm, Tensor as Role};
use wgpu_norm::{Activation, DType, DTypes, Epilogue, Forward, Need, Norm, Operation, Residual};

/// A layer with its parameters, as they are at the moment.
pub struct Layer {
    pub norm: Norm,
    pub gamma: Option<Tensor<1>>,
    pub beta: Option<Tensor<1>>,
    pub epsilon: f64,
}

/// What batch norm may be given beside src.
#[derive(Default)]
pub struct Given<'a, const D: usize> {
    pub activation: Activation,
    /// Added to the layer's output before the activation, of which there is one then.
    pub residual: Option<&'a Tensor<D>>,
    /// In place of those of src.
    pub statistics: Option<[Tensor<1>; 2]>,
}

/// What a layer writes.
pub struct Output<const D: usize> {
    pub dst: Tensor<D>,
    /// In the layer's order, where they are kept.
    pub statistics: Vec<DispatchTensor>,
}

/// What a layer reads.
type Inputs = Vec<(Role, DispatchTensor)>;

impl Layer {
    /// The layer's output; `None` where Burn has to run it.
    pub fn forward<const D: usize>(self, src: &Tensor<D>) -> Option<Tensor<D>> {
        Some(self.run(src, Given::default())?.dst)
    }

    /// The same with more than src; `None` where Burn has to run it, which is said and counted.
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

    /// What the layer reads, and its plans: of its gradient, too, where there may be one; else why it cannot be run.
    fn prepared<const D: usize>(
        self,
        src: &Tensor<D>,
        given: Given<'_, D>,
    ) -> Result<(Inputs, Arc<Prepared>), String> {
        let launch = choose(&src.device())?;
        let device = cube_device(&src.device()).ok_or("the device is none of wgpu's")?;
        if src.dims().contains(&0) {
            return Err("a tensor is empty".to_owned());
        }
        let (gamma, beta) = (self.gamma.is_some(), self.beta.is_some());
        let (norm, epsilon) = (self.norm.clone(), self.epsilon);
        let params = self.gamma.as_ref().or(self.beta.as_ref());
        let (data, params) = (src.dtype(), params.map_or(src.dtype(), Tensor::dtype));
        let epilogue = match given.residual {
            Some(_) => Epilogue::new(Residual::After, given.activation),
            None => Epilogue::new(Residual::None, given.activation),
        };
        let of_src = given.statistics.is_none();
        let inputs = self.inputs(src, given);
        // Burn differentiates what has any tensor on an autodiff device.
        let differentiated = inputs
            .iter()
            .any(|(_, tensor)| tensor.autodiff != DispatchAutodiffContext::Disabled);
        let pass = match (of_src, differentiated) {
            (false, true) => {
                return Err("a layer by its running statistics is differentiated".to_owned());
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

    /// In the order of an operation's tensors.
    fn inputs<const D: usize>(self, src: &Tensor<D>, given: Given<'_, D>) -> Inputs {
        let accumulator = match src.dtype() {
            BurnDType::F64 => BurnDType::F64,
            _ => BurnDType::F32,
        };
        let statistics = given.statistics.into_iter().flatten();
        let statistics = statistics.map(|tensor| tensor.cast(accumulator));
        let statistics = self.norm.statistics().iter().copied().zip(statistics);
        let params = [(Role::Gamma, self.gamma), (Role::Beta, self.beta)];
        let params = params
            .into_iter()
            .filter_map(|(role, param)| Some((role, param?)));
        let vectors = statistics.chain(params);
        let residual = given.residual.map(|residual| (Role::Residual, residual));
        let whole = [(Role::Src, src)].into_iter().chain(residual);
        whole
            .map(|(role, tensor)| (role, tensor.clone().into_dispatch()))
            .chain(vectors.map(|(role, tensor)| (role, tensor.into_dispatch())))
            .collect()
    }
}

/// Whether a layer keeps the statistics of src even where nobody asks for them.
fn keeps_statistics(norm: &Norm) -> bool {
    let slots = Operation::slots(norm, &Forward::default().into());
    let mut always = slots.iter().filter(|slot| slot.need == Need::Always);
    always.any(|slot| norm.statistics().contains(&slot.tensor))
}

/// An error where tensors are not what a plan takes for granted: Burn knows what to do about it.
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

/// An element type by the library's name; an error for one that no layer has.
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
