//! A call on host memory: an operation, the tensors given to it, and its results.

use crate::context::GpuContext;
use crate::element::Element;
use crate::error::Error;
use crate::memory;
use crate::operation::Operation;
use crate::tensor::{Access, Format, Tensor, TensorUse};
use bytemuck::Pod;

/// An operation, and the tensors that are given to it.
pub(crate) struct Call<'a> {
    pub operation: Operation,
    pub given: Vec<(Tensor, &'a [u8])>,
}

impl<'a> Call<'a> {
    /// A call with the layer's input alone.
    pub fn new<T: Pod>(operation: Operation, src: &'a [T]) -> Self {
        let given = Vec::new();
        Self { operation, given }.with(Tensor::Src, src)
    }

    /// Adds a tensor, if it is given.
    pub fn with<E: Pod>(mut self, tensor: Tensor, values: impl Into<Option<&'a [E]>>) -> Self {
        let values = values.into();
        let given = values.map(|values| (tensor, bytemuck::cast_slice(values)));
        self.given.extend(given);
        self
    }

    /// Runs it with data of type T, parameters of type P and statistics of type S.
    pub async fn run<T: Element, P: Element, S: Element>(
        mut self,
        gpu: &GpuContext,
    ) -> Result<Results<T, P, S>, Error> {
        let tensors = self.operation.tensors()?;
        let mut results = self.take_results(&tensors)?;
        let Self { operation, given } = self;
        operation
            .run_into(gpu, &given, &mut results.slices())
            .await?;
        Ok(results)
    }

    /// Allocates all results. A tensor that is both read and written moves from the given tensors to the results.
    pub fn take_results<T: Element, P: Element, S: Element>(
        &mut self,
        tensors: &[TensorUse],
    ) -> Result<Results<T, P, S>, Error> {
        let mut results = Results::<T, P, S> {
            data: Vec::new(),
            params: Vec::new(),
            statistics: Vec::new(),
            masks: Vec::new(),
        };
        for used in tensors {
            let old = match used.access {
                Access::In => continue,
                Access::Out => None,
                Access::InOut => {
                    let mut given = self.given.iter();
                    let at = given.position(|(tensor, _)| *tensor == used.tensor);
                    at.map(|at| self.given.swap_remove(at).1)
                }
            };
            match used.tensor {
                _ if used.format == Format::Bits => add(&mut results.masks, used, old)?,
                tensor if tensor.is_param() => add(&mut results.params, used, old)?,
                tensor if tensor.is_statistic() => add(&mut results.statistics, used, old)?,
                _ => add(&mut results.data, used, old)?,
            }
        }
        Ok(results)
    }
}

/// The gradients that a layer computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Grads<T, P> {
    /// Gradient with respect to src, of src's shape.
    pub diff_src: Vec<T>,
    /// Gradient with respect to gamma, as long as gamma. Computed unless the layer is
    /// frozen (`param_grads(false)`), by layer, RMS and axes norm only if gamma or beta is given.
    pub diff_gamma: Option<Vec<P>>,
    /// Gradient with respect to beta, likewise; RMS norm has none.
    pub diff_beta: Option<Vec<P>>,
    /// Gradient with respect to the gate, if one is given; likewise.
    pub diff_gate: Option<Vec<P>>,
    /// Gradient with respect to the residual that was added before an activation, if a mask was given. The gradient of
    /// a residual without an activation is diff_dst.
    pub diff_residual: Option<Vec<T>>,
}

type Named<E> = Vec<(Tensor, Vec<E>)>;

/// The results of an operation.
pub(crate) struct Results<T, P, S> {
    data: Named<T>,
    params: Named<P>,
    statistics: Named<S>,
    masks: Named<u32>,
}

impl<T: Pod, P: Pod, S: Pod> Results<T, P, S> {
    /// The bytes of all results.
    pub fn slices(&mut self) -> Vec<(Tensor, &mut [u8])> {
        bytes(&mut self.data)
            .chain(bytes(&mut self.params))
            .chain(bytes(&mut self.statistics))
            .chain(bytes(&mut self.masks))
            .collect()
    }
}

impl<T, P, S> Results<T, P, S> {
    /// The layer's output.
    pub fn dst(&mut self) -> Vec<T> {
        take(&mut self.data, Tensor::Dst).unwrap_or_default()
    }

    /// src + residual, if a residual was added before the layer.
    pub fn sum(&mut self) -> Option<Vec<T>> {
        take(&mut self.data, Tensor::Sum)
    }

    /// A statistic, if it is a result.
    pub fn statistic(&mut self, tensor: Tensor) -> Option<Vec<S>> {
        take(&mut self.statistics, tensor)
    }

    /// The activation mask, if it is a result.
    pub fn mask(&mut self) -> Option<Vec<u32>> {
        take(&mut self.masks, Tensor::Mask)
    }

    /// The gradients.
    pub fn grads(mut self) -> Grads<T, P> {
        Grads {
            diff_src: take(&mut self.data, Tensor::DiffSrc).unwrap_or_default(),
            diff_gamma: take(&mut self.params, Tensor::DiffGamma),
            diff_beta: take(&mut self.params, Tensor::DiffBeta),
            diff_gate: take(&mut self.params, Tensor::DiffGate),
            diff_residual: take(&mut self.data, Tensor::DiffResidual),
        }
    }
}

/// Adds a result, with its elements before it is computed: the old ones, or zeros.
fn add<E: Pod>(to: &mut Named<E>, used: &TensorUse, old: Option<&[u8]>) -> Result<(), Error> {
    let name = used.tensor.name();
    let values = match old {
        Some(bytes) => {
            let values = bytes.chunks_exact(size_of::<E>());
            memory::collect(name, values.map(bytemuck::pod_read_unaligned))?
        }
        None => {
            let len = usize::try_from(used.elements()).unwrap_or(usize::MAX);
            memory::filled(name, len, E::zeroed())?
        }
    };
    to.push((used.tensor, values));
    Ok(())
}

fn bytes<E: Pod>(of: &mut Named<E>) -> impl Iterator<Item = (Tensor, &mut [u8])> {
    let slices = of.iter_mut();
    slices.map(|(tensor, values)| (*tensor, bytemuck::cast_slice_mut(values)))
}

fn take<E>(from: &mut Named<E>, tensor: Tensor) -> Option<Vec<E>> {
    let at = from.iter().position(|(named, _)| *named == tensor)?;
    Some(from.swap_remove(at).1)
}
