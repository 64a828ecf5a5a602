//! The operations as Burn's backends have them: on CubeCL's tensors, delayed by Fusion, differentiated by Autodiff.

use crate::problem::{Norm, Pass, Problem};
use crate::run::{Bound, empty, run};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::{CubeBackend, CubeTensor};
use burn::backend::{AutodiffBackend, Backend, ExtensionType, backend_extension};
use burn::tensor::{DType, Shape};
use wgpu_norm::export::Tensor;

/// A tensor that a layer may lack.
#[derive(ExtensionType, Debug, Clone)]
#[extension_type(fusion)]
pub enum Maybe<B: Backend> {
    /// It is there.
    Some(FloatTensor<B>),
    /// It is not.
    None,
}

impl<B: Backend> Maybe<B> {
    fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Self::Some(tensor) => Some(tensor),
            Self::None => None,
        }
    }
}

impl<B: Backend> From<Option<FloatTensor<B>>> for Maybe<B> {
    fn from(tensor: Option<FloatTensor<B>>) -> Self {
        tensor.map_or(Self::None, Self::Some)
    }
}

/// The passes of every layer. The problem says of which.
#[backend_extension(Cube, Autodiff, Fusion)]
pub trait Norms: Backend {
    /// The output, the mean or mean square, and the variance where the layer has one.
    #[fusion(meta = forward_specs)]
    fn norm_forward(
        src: FloatTensor<Self>,
        #[extension_type] gamma: Maybe<Self>,
        #[extension_type] beta: Maybe<Self>,
        problem: Problem,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, Maybe<Self>);

    /// The output by given statistics.
    #[fusion(meta = |src, _, _, _, _, _| src.clone())]
    fn norm_inference(
        src: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        #[extension_type] gamma: Maybe<Self>,
        #[extension_type] beta: Maybe<Self>,
        problem: Problem,
    ) -> FloatTensor<Self>;

    /// The gradients of src, gamma and beta.
    #[fusion(meta = backward_specs)]
    fn norm_backward(
        src: FloatTensor<Self>,
        diff_dst: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        #[extension_type] variance: Maybe<Self>,
        #[extension_type] gamma: Maybe<Self>,
        #[extension_type] beta: Maybe<Self>,
        problem: Problem,
    ) -> (FloatTensor<Self>, Maybe<Self>, Maybe<Self>);
}

fn spec(shape: Vec<usize>, dtype: DType) -> TensorSpec {
    TensorSpec::new(Shape::from(shape), dtype)
}

fn forward_specs(
    src: &TensorSpec,
    _: &MaybeMetadata,
    _: &MaybeMetadata,
    problem: &Problem,
) -> (TensorSpec, TensorSpec, MaybeMetadata) {
    let statistic = spec(problem.statistics_shape(), problem.statistics());
    let variance = match problem.norm {
        Norm::Rms => MaybeMetadata::None,
        _ => MaybeMetadata::Some(statistic.clone()),
    };
    (src.clone(), statistic, variance)
}

fn backward_specs(
    src: &TensorSpec,
    _: &TensorSpec,
    _: &TensorSpec,
    _: &MaybeMetadata,
    _: &MaybeMetadata,
    _: &MaybeMetadata,
    problem: &Problem,
) -> (TensorSpec, MaybeMetadata, MaybeMetadata) {
    let [gamma, beta] = param_grads(problem).map(|there| match there {
        true => MaybeMetadata::Some(spec(problem.params_shape(), problem.params)),
        false => MaybeMetadata::None,
    });
    (src.clone(), gamma, beta)
}

/// Whether the gradients of gamma and beta are wanted.
fn param_grads(problem: &Problem) -> [bool; 2] {
    let wanted = problem.pass == Pass::Backward { params: true };
    [wanted && problem.gamma, wanted && problem.beta]
}

impl Norms for CubeBackend {
    fn norm_forward(
        src: CubeTensor,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> (CubeTensor, CubeTensor, Maybe<Self>) {
        let dst = empty(&src, &problem.shape, src.dtype);
        let statistic = || empty(&src, &problem.statistics_shape(), problem.statistics());
        let mean = statistic();
        let (of_mean, variance) = match problem.norm {
            Norm::Rms => (Tensor::MeanSquare, None),
            _ => (Tensor::Mean, Some(statistic())),
        };
        let mut outputs = vec![(Tensor::Dst, dst.clone()), (of_mean, mean.clone())];
        outputs.extend(variance.clone().map(|tensor| (Tensor::Variance, tensor)));
        let inputs = inputs([(Tensor::Src, src)], gamma, beta);
        run(&problem, inputs, &outputs);
        (dst, mean, variance.into())
    }

    fn norm_inference(
        src: CubeTensor,
        mean: CubeTensor,
        variance: CubeTensor,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> CubeTensor {
        let dst = empty(&src, &problem.shape, src.dtype);
        let given = [
            (Tensor::Src, src),
            (Tensor::Mean, mean),
            (Tensor::Variance, variance),
        ];
        run(
            &problem,
            inputs(given, gamma, beta),
            &[(Tensor::Dst, dst.clone())],
        );
        dst
    }

    fn norm_backward(
        src: CubeTensor,
        diff_dst: CubeTensor,
        mean: CubeTensor,
        variance: Maybe<Self>,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> (CubeTensor, Maybe<Self>, Maybe<Self>) {
        let diff_src = empty(&src, &problem.shape, src.dtype);
        let mut outputs = vec![(Tensor::DiffSrc, diff_src.clone())];
        // A plan writes the gradients of both parameters or of none; RMS norm has no beta.
        let [has_gamma, has_beta] = param_grads(&problem);
        let param = || empty(&src, &problem.params_shape(), problem.params);
        let diff_gamma = (has_gamma || has_beta).then(param);
        let diff_beta = (problem.norm != Norm::Rms && (has_gamma || has_beta)).then(param);
        for (role, tensor) in [
            (Tensor::DiffGamma, &diff_gamma),
            (Tensor::DiffBeta, &diff_beta),
        ] {
            outputs.extend(tensor.clone().map(|tensor| (role, tensor)));
        }
        let mut given = vec![(Tensor::Src, src), (Tensor::DiffDst, diff_dst)];
        match problem.norm {
            Norm::Rms => given.push((Tensor::MeanSquare, mean)),
            _ => given.push((Tensor::Mean, mean)),
        }
        given.extend(variance.into_option().map(|t| (Tensor::Variance, t)));
        let beta = match problem.norm {
            Norm::Batch { relu: true } => beta,
            _ => Maybe::None,
        };
        run(&problem, inputs(given, gamma, beta), &outputs);
        let kept = |tensor: Option<CubeTensor>, kept: bool| tensor.filter(|_| kept).into();
        (
            diff_src,
            kept(diff_gamma, has_gamma),
            kept(diff_beta, has_beta),
        )
    }
}

fn inputs(
    given: impl IntoIterator<Item = Bound>,
    gamma: Maybe<CubeBackend>,
    beta: Maybe<CubeBackend>,
) -> Vec<Bound> {
    let gamma = gamma.into_option().map(|tensor| (Tensor::Gamma, tensor));
    let beta = beta.into_option().map(|tensor| (Tensor::Beta, tensor));
    given.into_iter().chain(gamma).chain(beta).collect()
}

/// What a gradient needs of the forward pass.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    src: NodeId,
    gamma: Option<NodeId>,
    beta: Option<NodeId>,
    mean: FloatTensor<B>,
    variance: Option<FloatTensor<B>>,
    problem: Problem,
}

/// The gradient of a layer of N differentiable tensors: src, then gamma and beta where it has them.
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
        let diff_dst = grads.consume::<B>(&ops.node);
        let saved = ops.state;
        let mut tensor =
            |node: NodeId| -> FloatTensor<B> { checkpointer.retrieve_node_output(node) };
        let src = tensor(saved.src);
        let gamma = saved.gamma.map(&mut tensor);
        let beta = saved.beta.map(&mut tensor);
        let params = ops.parents.iter().skip(1).any(Option::is_some);
        let problem = saved.problem.of(Pass::Backward { params });
        let has = [gamma.is_some(), beta.is_some()];
        let (diff_src, diff_gamma, diff_beta) = B::norm_backward(
            src,
            diff_dst,
            saved.mean,
            saved.variance.into(),
            gamma.into(),
            beta.into(),
            problem,
        );
        let params = [diff_gamma, diff_beta].into_iter().zip(has);
        let params = params.filter(|(_, there)| *there);
        let params = params.map(|(gradient, _)| gradient.into_option());
        let all = std::iter::once(Some(diff_src)).chain(params);
        for (parent, gradient) in ops.parents.into_iter().zip(all) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

type Forward<B> = (FloatTensor<B>, FloatTensor<B>, Maybe<B>);

impl<B: Norms, C: CheckpointStrategy> Norms for Autodiff<B, C> {
    fn norm_forward(
        src: FloatTensor<Self>,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> Forward<Self> {
        match (gamma, beta) {
            (Maybe::Some(gamma), Maybe::Some(beta)) => {
                let nodes = [src.node(), gamma.node(), beta.node()];
                tracked::<B, C, 3>(nodes, src, Some(gamma), Some(beta), problem)
            }
            (Maybe::Some(gamma), Maybe::None) => {
                let nodes = [src.node(), gamma.node()];
                tracked::<B, C, 2>(nodes, src, Some(gamma), None, problem)
            }
            (Maybe::None, Maybe::Some(beta)) => {
                let nodes = [src.node(), beta.node()];
                tracked::<B, C, 2>(nodes, src, None, Some(beta), problem)
            }
            (Maybe::None, Maybe::None) => {
                let nodes = [src.node()];
                tracked::<B, C, 1>(nodes, src, None, None, problem)
            }
        }
    }

    fn norm_inference(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Problem,
    ) -> FloatTensor<Self> {
        panic!("burn-wgpu-norm: a pass by given statistics is not differentiated");
    }

    fn norm_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Problem,
    ) -> (FloatTensor<Self>, Maybe<Self>, Maybe<Self>) {
        panic!("burn-wgpu-norm: a layer has no second derivative");
    }
}

fn tracked<B: Norms, C: CheckpointStrategy, const N: usize>(
    nodes: [NodeGuard; N],
    src: FloatTensor<Autodiff<B, C>>,
    gamma: Option<FloatTensor<Autodiff<B, C>>>,
    beta: Option<FloatTensor<Autodiff<B, C>>>,
    problem: Problem,
) -> Forward<Autodiff<B, C>> {
    let lifted = <Autodiff<B, C> as AutodiffBackend>::from_inner;
    let call = |src, gamma: Option<FloatTensor<B>>, beta: Option<FloatTensor<B>>| {
        B::norm_forward(src, gamma.into(), beta.into(), problem.clone())
    };
    match Step::<N>.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let saved = (
                prep.checkpoint(&src),
                gamma.as_ref().map(|gamma| prep.checkpoint(gamma)),
                beta.as_ref().map(|beta| prep.checkpoint(beta)),
            );
            let primitive = |t: FloatTensor<Autodiff<B, C>>| t.into_primitive();
            let (dst, mean, variance) =
                call(primitive(src), gamma.map(primitive), beta.map(primitive));
            let variance = variance.into_option();
            let state = Saved {
                src: saved.0,
                gamma: saved.1,
                beta: saved.2,
                mean: mean.clone(),
                variance: variance.clone(),
                problem: problem.clone(),
            };
            let dst = prep.finish(state, dst);
            (dst, lifted(mean), variance.map(lifted).into())
        }
        OpsKind::UnTracked(prep) => {
            let primitive = |t: FloatTensor<Autodiff<B, C>>| t.into_primitive();
            let (dst, mean, variance) =
                call(primitive(src), gamma.map(primitive), beta.map(primitive));
            let dst = prep.finish(dst);
            (dst, lifted(mean), variance.into_option().map(lifted).into())
        }
    }
}
