//! A pass as an operation of Burn's backends: run on CubeCL's tensors, delayed by Fusion, differentiated by Autodiff.

use crate::plans::Prepared;
use crate::run::run;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::CubeBackend;
use burn::backend::{AutodiffBackend, Backend, ExtensionType, backend_extension};
use burn::tensor::DType;
use std::array;
use std::sync::Arc;
use wgpu_norm::Tensor;

/// A tensor with its name, or none.
#[derive(ExtensionType, Debug, Clone)]
#[extension_type(fusion)]
pub enum Slot<B: Backend> {
    /// A tensor of numbers.
    Numbers(Tensor, FloatTensor<B>),
    /// A mask's words.
    Bits(Tensor, IntTensor<B>),
    /// None.
    Empty,
}

/// All tensors that a pass reads, or all that it writes. Burn's backends cannot pass a vector to each other.
#[derive(ExtensionType, Debug, Clone)]
#[extension_type(fusion)]
pub struct Tensors<B: Backend>(
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
    #[extension_type] Slot<B>,
);

fn eight<T: Clone>(slots: impl IntoIterator<Item = T>, empty: T) -> [T; 8] {
    let mut slots = slots.into_iter();
    let eight = array::from_fn(|_| slots.next().unwrap_or_else(|| empty.clone()));
    let more = slots.next().is_some();
    assert!(
        !more,
        "burn-wgpu-norm: a pass reads or writes more than eight tensors"
    );
    eight
}

impl<B: Backend> FromIterator<Slot<B>> for Tensors<B> {
    fn from_iter<I: IntoIterator<Item = Slot<B>>>(slots: I) -> Self {
        let [a, b, c, d, e, f, g, h] = eight(slots, Slot::Empty);
        Self(a, b, c, d, e, f, g, h)
    }
}

impl<B: Backend> IntoIterator for Tensors<B> {
    type Item = Slot<B>;
    type IntoIter = array::IntoIter<Slot<B>, 8>;

    fn into_iter(self) -> Self::IntoIter {
        let Self(a, b, c, d, e, f, g, h) = self;
        [a, b, c, d, e, f, g, h].into_iter()
    }
}

/// Any pass of any layer.
#[backend_extension(Cube, Autodiff, Fusion)]
pub trait Norms: Backend {
    /// Runs a pass: from the tensors that it reads to those that it writes.
    #[fusion(meta = specs)]
    fn norm(#[extension_type] inputs: Tensors<Self>, prepared: Arc<Prepared>) -> Tensors<Self>;
}

fn specs(_: &TensorsMetadata, prepared: &Arc<Prepared>) -> TensorsMetadata {
    let outputs = prepared.outputs.iter().cloned();
    let outputs = outputs.map(|(name, spec)| match spec.dtype {
        DType::U32 => SlotMetadata::Bits(name, spec),
        _ => SlotMetadata::Numbers(name, spec),
    });
    let [a, b, c, d, e, f, g, h] = eight(outputs, SlotMetadata::Empty);
    TensorsMetadata(a, b, c, d, e, f, g, h)
}

impl Norms for CubeBackend {
    fn norm(inputs: Tensors<Self>, prepared: Arc<Prepared>) -> Tensors<Self> {
        let inputs = inputs.into_iter().filter_map(|slot| match slot {
            Slot::Numbers(name, tensor) | Slot::Bits(name, tensor) => Some((name, tensor)),
            Slot::Empty => None,
        });
        let outputs = run(&prepared, inputs.collect()).into_iter();
        let outputs = outputs.map(|(name, tensor)| match tensor.dtype {
            DType::U32 => Slot::Bits(name, tensor),
            _ => Slot::Numbers(name, tensor),
        });
        outputs.collect()
    }
}

/// The data that a gradient needs from the forward pass.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    /// The gradient with parameter gradients, and without.
    gradients: [Arc<Prepared>; 2],
    /// The gradients with respect to the forward pass's inputs.
    wanted: Vec<Option<Tensor>>,
    /// The tensors that both passes read.
    inputs: Vec<(Tensor, NodeId)>,
    /// The tensors that the forward pass writes and the gradient reads.
    kept: Vec<Slot<B>>,
}

/// The gradient of a pass that reads N tensors.
#[derive(Debug)]
struct Step<const N: usize>;

impl<B: Norms, const N: usize> Backward<B, N> for Step<N> {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Saved<B>, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let diff_dst = Slot::Numbers(Tensor::DiffDst, grads.consume::<B>(&ops.node));
        let saved = ops.state;
        let parents = saved.wanted.into_iter().zip(ops.parents);
        let parents: Vec<_> = parents
            .filter_map(|(gradient, parent)| Some((gradient?, parent?.id)))
            .collect();
        let [both, frozen] = saved.gradients;
        let prepared = match parents.iter().any(|(gradient, _)| gradient.is_param()) {
            true => both,
            false => frozen,
        };
        let inputs = saved.inputs.into_iter();
        let inputs = inputs
            .map(|(name, node)| Slot::Numbers(name, checkpointer.retrieve_node_output(node)))
            .chain(saved.kept)
            .chain([diff_dst]);
        for slot in B::norm(inputs.collect(), prepared) {
            if let Slot::Numbers(name, gradient) = slot
                && let Some((_, parent)) = parents.iter().find(|(known, _)| *known == name)
            {
                grads.register::<B>(*parent, gradient);
            }
        }
    }
}

/// The gradient with respect to a tensor that a forward pass reads.
fn gradient_of(tensor: Tensor) -> Option<Tensor> {
    match tensor {
        Tensor::Src => Some(Tensor::DiffSrc),
        Tensor::Residual => Some(Tensor::DiffResidual),
        Tensor::Gamma => Some(Tensor::DiffGamma),
        Tensor::Beta => Some(Tensor::DiffBeta),
        _ => None,
    }
}

impl<B: Norms, C: CheckpointStrategy> Norms for Autodiff<B, C> {
    fn norm(inputs: Tensors<Self>, prepared: Arc<Prepared>) -> Tensors<Self> {
        let inputs = inputs.into_iter().filter_map(|slot| match slot {
            Slot::Numbers(name, tensor) => Some((name, tensor)),
            Slot::Bits(..) | Slot::Empty => None,
        });
        let inputs: Vec<_> = inputs.collect();
        match inputs.len() {
            1 => tracked::<B, C, 1>(inputs, prepared),
            2 => tracked::<B, C, 2>(inputs, prepared),
            3 => tracked::<B, C, 3>(inputs, prepared),
            _ => tracked::<B, C, 4>(inputs, prepared),
        }
    }
}

/// A forward pass that reads N tensors and may be differentiated.
fn tracked<B: Norms, C: CheckpointStrategy, const N: usize>(
    inputs: Vec<(Tensor, FloatTensor<Autodiff<B, C>>)>,
    prepared: Arc<Prepared>,
) -> Tensors<Autodiff<B, C>> {
    let Some(gradients) = prepared.gradients.clone() else {
        let operation = prepared.plan.operation();
        panic!("burn-wgpu-norm: {operation} has no gradient");
    };
    let nodes: Vec<NodeGuard> = inputs.iter().map(|(_, tensor)| tensor.node()).collect();
    let Ok(nodes) = <[NodeGuard; N]>::try_from(nodes) else {
        panic!("burn-wgpu-norm: expected a layer of {N} differentiable tensors");
    };
    let needed = |name: &Tensor| gradients[0].inputs.iter().any(|(read, _)| read == name);
    let run = |inputs: Vec<(Tensor, FloatTensor<Autodiff<B, C>>)>| {
        let inputs = inputs.into_iter();
        let inputs = inputs.map(|(name, tensor)| Slot::Numbers(name, tensor.into_primitive()));
        B::norm(inputs.collect(), prepared.clone())
    };
    match Step::<N>.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let both = inputs.iter().filter(|(name, _)| needed(name));
            let both = both
                .map(|(name, tensor)| (*name, prep.checkpoint(tensor)))
                .collect();
            let wanted = inputs.iter().map(|(name, _)| gradient_of(*name)).collect();
            let outputs = run(inputs);
            let kept = outputs.clone().into_iter().filter(|slot| match slot {
                Slot::Numbers(name, _) | Slot::Bits(name, _) => needed(name),
                Slot::Empty => false,
            });
            let state = Saved {
                wanted,
                inputs: both,
                kept: kept.collect(),
                gradients: gradients.clone(),
            };
            lifted(outputs, |dst| prep.finish(state, dst))
        }
        OpsKind::UnTracked(prep) => lifted(run(inputs), |dst| prep.finish(dst)),
    }
}

/// Converts tensors to Autodiff's: only dst becomes a node of its graph.
fn lifted<B: Norms, C: CheckpointStrategy>(
    outputs: Tensors<B>,
    finish: impl FnOnce(FloatTensor<B>) -> FloatTensor<Autodiff<B, C>>,
) -> Tensors<Autodiff<B, C>> {
    let mut finish = Some(finish);
    let lifted = outputs.into_iter().map(|slot| match slot {
        Slot::Numbers(Tensor::Dst, dst) => match finish.take() {
            Some(finish) => Slot::Numbers(Tensor::Dst, finish(dst)),
            None => Slot::Empty,
        },
        Slot::Numbers(name, tensor) => Slot::Numbers(
            name,
            <Autodiff<B, C> as AutodiffBackend>::from_inner(tensor),
        ),
        Slot::Bits(name, tensor) => Slot::Bits(name, tensor),
        Slot::Empty => Slot::Empty,
    });
    lifted.collect()
}
