//! Parameters in files of the format safetensors, under PyTorch's names.

use super::{Parameters, Running};
use crate::element::{DType, Element};
use crate::error::Error;
use crate::options::{RunningUpdate, RunningVariance};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

const WEIGHT: &str = "weight";
const BIAS: &str = "bias";
const RUNNING_MEAN: &str = "running_mean";
const RUNNING_VAR: &str = "running_var";
const BATCHES: &str = "num_batches_tracked";

/// To and from safetensors, with the feature `safetensors`.
impl<P: Element, S: Element> Parameters<P, S> {
    /// The tensors under the names that PyTorch gives them: `weight`, `bias`, `running_mean`, `running_var` and
    /// `num_batches_tracked`, each after `prefix` and a dot. Those of all layers, and the caller's own, make one file:
    ///
    /// ```
    /// use safetensors::SafeTensors;
    /// use wgpu_norm::{Parameters, RunningUpdate, RunningVariance};
    ///
    /// let update = RunningUpdate::new(0.1, RunningVariance::Unbiased);
    /// let first: Parameters<f32> = Parameters::new(64).with_running(update);
    /// let second: Parameters<f32> = Parameters::new(768);
    /// let tensors = first.tensors("bn1")?.into_iter().chain(second.tensors("encoder.norm")?);
    /// let bytes = safetensors::serialize(tensors, None)?;
    ///
    /// let file = SafeTensors::deserialize(&bytes)?;
    /// assert_eq!(Parameters::load(&file, "bn1")?, first);
    /// assert_eq!(Parameters::load(&file, "encoder.norm")?, second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a tensor is too large for the format.
    pub fn tensors(&self, prefix: &str) -> Result<Vec<(String, TensorView<'_>)>, Error> {
        let mut tensors = Vec::new();
        let mut add = |name, dtype, shape, bytes| {
            let view = TensorView::new(dtype, shape, bytes);
            let view = view.map_err(|error| Error::argument("parameters", "tensors", error))?;
            tensors.push((named(prefix, name), view));
            Ok::<(), Error>(())
        };
        for (name, param) in [(WEIGHT, &self.gamma), (BIAS, &self.beta)] {
            if let Some(param) = param {
                let bytes = bytemuck::cast_slice(param);
                add(name, dtype_of(P::DTYPE), vec![param.len()], bytes)?;
            }
        }
        if let Some(running) = &self.running {
            for (name, values) in [
                (RUNNING_MEAN, &running.mean),
                (RUNNING_VAR, &running.variance),
            ] {
                let bytes = bytemuck::cast_slice(values);
                add(name, dtype_of(S::DTYPE), vec![values.len()], bytes)?;
            }
            add(
                BATCHES,
                Dtype::I64,
                vec![],
                bytemuck::bytes_of(&running.batches),
            )?;
        }
        Ok(tensors)
    }

    /// The parameters under these names, rounded to P and S where the file has another floating-point type. Running
    /// statistics are updated as in PyTorch by default: with weight 0.1 and the unbiased variance.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the file has none of these names, one of the running statistics without the other, or
    /// elements of another kind.
    pub fn load(file: &SafeTensors<'_>, prefix: &str) -> Result<Self, Error> {
        let running = match (
            elements(file, prefix, RUNNING_MEAN)?,
            elements(file, prefix, RUNNING_VAR)?,
        ) {
            (Some(mean), Some(variance)) => Some(Running {
                mean,
                variance,
                update: RunningUpdate::new(0.1, RunningVariance::Unbiased),
                batches: batches(file, prefix)?,
            }),
            (None, None) => None,
            (mean, _) => {
                let missing = if mean.is_some() {
                    RUNNING_VAR
                } else {
                    RUNNING_MEAN
                };
                return Err(missing_tensor(file, &named(prefix, missing)));
            }
        };
        let parameters = Self {
            gamma: elements(file, prefix, WEIGHT)?,
            beta: elements(file, prefix, BIAS)?,
            running,
        };
        if parameters.gamma.is_none() && parameters.beta.is_none() && parameters.running.is_none() {
            return Err(missing_tensor(file, &named(prefix, WEIGHT)));
        }
        Ok(parameters)
    }
}

fn named(prefix: &str, name: &str) -> String {
    if prefix.is_empty() || prefix.ends_with('.') {
        format!("{prefix}{name}")
    } else {
        format!("{prefix}.{name}")
    }
}

fn missing_tensor(file: &SafeTensors<'_>, name: &str) -> Error {
    let mut names = file.names();
    names.sort_unstable();
    Error::argument("safetensors", format!("a tensor {name}"), names.join(", "))
}

fn dtype_of(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

/// The elements of a tensor, if the file has it.
fn elements<E: Element>(
    file: &SafeTensors<'_>,
    prefix: &str,
    name: &str,
) -> Result<Option<Vec<E>>, Error> {
    let name = named(prefix, name);
    let Ok(tensor) = file.tensor(&name) else {
        return Ok(None);
    };
    let known = DType::ALL.into_iter();
    let Some(dtype) = { known }.find(|&known| dtype_of(known) == tensor.dtype()) else {
        let expected = format!("{name} of floating-point numbers");
        return Err(Error::argument(
            "safetensors",
            expected,
            format!("{:?}", tensor.dtype()),
        ));
    };
    if dtype == E::DTYPE {
        return Ok(Some(bytemuck::pod_collect_to_vec(tensor.data())));
    }
    Ok(Some(dtype.values(tensor.data()).map(E::from_f64).collect()))
}

/// The number of batches: 0 if the file does not say.
fn batches(file: &SafeTensors<'_>, prefix: &str) -> Result<u64, Error> {
    let name = named(prefix, BATCHES);
    let Ok(tensor) = file.tensor(&name) else {
        return Ok(0);
    };
    match (tensor.dtype(), <[u8; 8]>::try_from(tensor.data())) {
        (Dtype::I64 | Dtype::U64, Ok(bytes)) => Ok(u64::from_le_bytes(bytes)),
        (dtype, _) => {
            let expected = format!("{name} as one 64-bit integer");
            Err(Error::argument(
                "safetensors",
                expected,
                format!("{dtype:?} {:?}", tensor.shape()),
            ))
        }
    }
}
