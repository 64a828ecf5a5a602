//! The operations as Burn's backends have them: on CubeCL's tensors, delayed by Fusion, differentiated by Autodiff.

use crate::problem::{Norm, Pass, Problem};
use crate::run::{Bound, empty, run};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeBackend, CubeTensor};
use burn::backend::{AutodiffBackend, Backend, ExtensionType, backend_extension};
use burn::tensor::{DType, Shape};
use wgpu_norm::Tensor;

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

/// What passed an activation, a bit for each element, where the forward pass has to tell.
#[derive(ExtensionType, Debug, Clone)]
#[extension_type(fusion)]
pub enum Mask<B: Backend> {
    /// It has to.
    Some(IntTensor<B>),
    /// It has not.
    None,
}

/// The passes of every layer. The problem says of which.
#[backend_extension(Cube, Autodiff, Fusion)]
pub trait Norms: Backend {
    /// The output, the mean or mean square, the variance where the layer has one, and the mask.
    #[fusion(meta = forward_specs)]
    fn norm_forward(
        src: FloatTensor<Self>,
        #[extension_type] residual: Maybe<Self>,
        #[extension_type] gamma: Maybe<Self>,
        #[extension_type] beta: Maybe<Self>,
        problem: Problem,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        Maybe<Self>,
        Mask<Self>,
    );

    /// The output alone: of batch norm by given statistics, of other layers without any.
    #[fusion(meta = |src, _, _, _, _, _, _| src.clone())]
    fn norm_inference(
        src: FloatTensor<Self>,
        #[extension_type] residual: Maybe<Self>,
        #[extension_type] mean: Maybe<Self>,
        #[extension_type] variance: Maybe<Self>,
        #[extension_type] gamma: Maybe<Self>,
        #[extension_type] beta: Maybe<Self>,
        problem: Problem,
    ) -> FloatTensor<Self>;

    /// The gradients of src, of the residual, of gamma and beta.
    #[fusion(meta = backward_specs)]
    #[allow(clippy::too_many_arguments, reason = "a gradient has as many")]
    fn norm_backward(
        src: FloatTensor<Self>,
        diff_dst: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        #[extension_type] variance: Maybe<Self>,
        #[extension_type] mask: Mask<Self>,
        #[extension_type] gamma: Maybe<Self>,
        #[extension_type] beta: Maybe<Self>,
        problem: Problem,
    ) -> (FloatTensor<Self>, Maybe<Self>, Maybe<Self>, Maybe<Self>);
}

fn spec(shape: Vec<usize>, dtype: DType) -> TensorSpec {
    TensorSpec::new(Shape::from(shape), dtype)
}

fn forward_specs(
    src: &TensorSpec,
    _: &MaybeMetadata,
    _: &MaybeMetadata,
    _: &MaybeMetadata,
    problem: &Problem,
) -> (TensorSpec, TensorSpec, MaybeMetadata, MaskMetadata) {
    let statistic = spec(problem.statistics_shape(), problem.statistics());
    let variance = match problem.norm {
        Norm::Rms => MaybeMetadata::None,
        _ => MaybeMetadata::Some(statistic.clone()),
    };
    let mask = match problem.has_residual() {
        true => MaskMetadata::Some(spec(problem.mask_shape(), DType::U32)),
        false => MaskMetadata::None,
    };
    (src.clone(), statistic, variance, mask)
}

#[allow(clippy::too_many_arguments, reason = "those of the operation")]
fn backward_specs(
    src: &TensorSpec,
    _: &TensorSpec,
    _: &TensorSpec,
    _: &MaybeMetadata,
    _: &MaskMetadata,
    _: &MaybeMetadata,
    _: &MaybeMetadata,
    problem: &Problem,
) -> (TensorSpec, MaybeMetadata, MaybeMetadata, MaybeMetadata) {
    let [gamma, beta] = param_grads(problem).map(|there| match there {
        true => MaybeMetadata::Some(spec(problem.params_shape(), problem.params)),
        false => MaybeMetadata::None,
    });
    let residual = match problem.has_residual() {
        true => MaybeMetadata::Some(src.clone()),
        false => MaybeMetadata::None,
    };
    (src.clone(), residual, gamma, beta)
}

/// Whether the gradients of gamma and beta are wanted.
fn param_grads(problem: &Problem) -> [bool; 2] {
    let wanted = problem.pass == Pass::Backward { params: true };
    [wanted && problem.gamma, wanted && problem.beta]
}

impl Norms for CubeBackend {
    fn norm_forward(
        src: CubeTensor,
        residual: Maybe<Self>,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> (CubeTensor, CubeTensor, Maybe<Self>, Mask<Self>) {
        let dst = empty(&src, &problem.shape, src.dtype);
        let statistic = || empty(&src, &problem.statistics_shape(), problem.statistics());
        let mean = statistic();
        let (of_mean, variance) = match problem.norm {
            Norm::Rms => (Tensor::MeanSquare, None),
            _ => (Tensor::Mean, Some(statistic())),
        };
        let new_mask = || empty(&src, &problem.mask_shape(), DType::U32);
        let mask = problem.has_residual().then(new_mask);
        let mut outputs = vec![(Tensor::Dst, dst.clone()), (of_mean, mean.clone())];
        outputs.extend(variance.clone().map(|tensor| (Tensor::Variance, tensor)));
        outputs.extend(mask.clone().map(|tensor| (Tensor::Mask, tensor)));
        let optional = [
            (Tensor::Residual, residual),
            (Tensor::Gamma, gamma),
            (Tensor::Beta, beta),
        ];
        run(&problem, inputs([(Tensor::Src, src)], optional), &outputs);
        (
            dst,
            mean,
            variance.into(),
            mask.map_or(Mask::None, Mask::Some),
        )
    }

    fn norm_inference(
        src: CubeTensor,
        residual: Maybe<Self>,
        mean: Maybe<Self>,
        variance: Maybe<Self>,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> CubeTensor {
        let dst = empty(&src, &problem.shape, src.dtype);
        let optional = [
            (Tensor::Residual, residual),
            (Tensor::Mean, mean),
            (Tensor::Variance, variance),
            (Tensor::Gamma, gamma),
            (Tensor::Beta, beta),
        ];
        let inputs = inputs([(Tensor::Src, src)], optional);
        run(&problem, inputs, &[(Tensor::Dst, dst.clone())]);
        dst
    }

    fn norm_backward(
        src: CubeTensor,
        diff_dst: CubeTensor,
        mean: CubeTensor,
        variance: Maybe<Self>,
        mask: Mask<Self>,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> (CubeTensor, Maybe<Self>, Maybe<Self>, Maybe<Self>) {
        let like_src = || empty(&src, &problem.shape, src.dtype);
        let diff_src = like_src();
        let diff_residual = problem.has_residual().then(like_src);
        // A plan writes the gradients of both parameters or of none; RMS norm has no beta.
        let [has_gamma, has_beta] = param_grads(&problem);
        let param = || empty(&src, &problem.params_shape(), problem.params);
        let diff_gamma = (has_gamma || has_beta).then(param);
        let diff_beta = (problem.norm != Norm::Rms && (has_gamma || has_beta)).then(param);
        let mut outputs = vec![(Tensor::DiffSrc, diff_src.clone())];
        for (role, tensor) in [
            (Tensor::DiffResidual, &diff_residual),
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
        if let Mask::Some(mask) = mask {
            given.push((Tensor::Mask, mask));
        }
        let optional = [
            (Tensor::Variance, variance),
            (Tensor::Gamma, gamma),
            (Tensor::Beta, beta),
        ];
        run(&problem, inputs(given, optional), &outputs);
        let kept = |tensor: Option<CubeTensor>, kept: bool| tensor.filter(|_| kept).into();
        (
            diff_src,
            diff_residual.into(),
            kept(diff_gamma, has_gamma),
            kept(diff_beta, has_beta),
        )
    }
}

/// All that are there.
fn inputs(
    given: impl IntoIterator<Item = Bound>,
    optional: impl IntoIterator<Item = (Tensor, Maybe<CubeBackend>)>,
) -> Vec<Bound> {
    let optional = optional
        .into_iter()
        .filter_map(|(role, tensor)| Some((role, tensor.into_option()?)));
    given.into_iter().chain(optional).collect()
}

/// What a gradient needs of the forward pass.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    src: NodeId,
    gamma: Option<NodeId>,
    /// Where the gradient reads it.
    beta: Option<NodeId>,
    mean: FloatTensor<B>,
    variance: Option<FloatTensor<B>>,
    mask: Option<IntTensor<B>>,
    problem: Problem,
}

/// The gradient of a layer of N differentiable tensors: src, then residual, gamma and beta where it has them.
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
        let has_residual = saved.problem.has_residual();
        let has = [has_residual, saved.problem.gamma, saved.problem.beta];
        let mut tensor =
            |node: NodeId| -> FloatTensor<B> { checkpointer.retrieve_node_output(node) };
        let src = tensor(saved.src);
        let gamma = saved.gamma.map(&mut tensor);
        let beta = saved.beta.map(&mut tensor);
        let before = 1 + usize::from(has_residual);
        let params = ops.parents.iter().skip(before).any(Option::is_some);
        let (diff_src, diff_residual, diff_gamma, diff_beta) = B::norm_backward(
            src,
            diff_dst,
            saved.mean,
            saved.variance.into(),
            saved.mask.map_or(Mask::None, Mask::Some),
            gamma.into(),
            beta.into(),
            saved.problem.of(Pass::Backward { params }),
        );
        let others = [diff_residual, diff_gamma, diff_beta].into_iter().zip(has);
        let others = others.filter(|(_, there)| *there);
        let others = others.map(|(gradient, _)| gradient.into_option());
        let all = std::iter::once(Some(diff_src)).chain(others);
        for (parent, gradient) in ops.parents.into_iter().zip(all) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

type Forward<B> = (FloatTensor<B>, FloatTensor<B>, Maybe<B>, Mask<B>);

impl<B: Norms, C: CheckpointStrategy> Norms for Autodiff<B, C> {
    fn norm_forward(
        src: FloatTensor<Self>,
        residual: Maybe<Self>,
        gamma: Maybe<Self>,
        beta: Maybe<Self>,
        problem: Problem,
    ) -> Forward<Self> {
        let call = Call {
            src,
            residual: residual.into_option(),
            gamma: gamma.into_option(),
            beta: beta.into_option(),
            problem,
        };
        let optional = [&call.residual, &call.gamma, &call.beta];
        match optional.into_iter().flatten().count() {
            0 => call.tracked::<1>(),
            1 => call.tracked::<2>(),
            2 => call.tracked::<3>(),
            _ => call.tracked::<4>(),
        }
    }

    fn norm_inference(
        _: FloatTensor<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Problem,
    ) -> FloatTensor<Self> {
        // Layers call it where no tensor is on an autodiff device.
        panic!("burn-wgpu-norm: a pass that keeps nothing is not differentiated");
    }

    fn norm_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Maybe<Self>,
        _: Mask<Self>,
        _: Maybe<Self>,
        _: Maybe<Self>,
        _: Problem,
    ) -> (FloatTensor<Self>, Maybe<Self>, Maybe<Self>, Maybe<Self>) {
        panic!("burn-wgpu-norm: a layer has no second derivative");
    }
}

/// A forward pass that may be differentiated.
struct Call<B: Norms, C: CheckpointStrategy> {
    src: FloatTensor<Autodiff<B, C>>,
    residual: Option<FloatTensor<Autodiff<B, C>>>,
    gamma: Option<FloatTensor<Autodiff<B, C>>>,
    beta: Option<FloatTensor<Autodiff<B, C>>>,
    problem: Problem,
}

impl<B: Norms, C: CheckpointStrategy> Call<B, C> {
    /// Its nodes are N.
    fn tracked<const N: usize>(self) -> Forward<Autodiff<B, C>> {
        let optional = [&self.residual, &self.gamma, &self.beta];
        let tensors = std::iter::once(&self.src).chain(optional.into_iter().flatten());
        let nodes: Vec<NodeGuard> = tensors.map(|tensor| tensor.node()).collect();
        let Ok(nodes) = <[NodeGuard; N]>::try_from(nodes) else {
            panic!("burn-wgpu-norm: expected a layer of {N} differentiable tensors");
        };
        match Step::<N>.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let src = prep.checkpoint(&self.src);
                let gamma = self.gamma.as_ref().map(|gamma| prep.checkpoint(gamma));
                let beta = self.beta.as_ref();
                let beta = beta.filter(|_| self.problem.gradient_reads_beta());
                let beta = beta.map(|beta| prep.checkpoint(beta));
                let problem = self.problem.clone();
                let (dst, mean, variance, mask) = self.run();
                let state = Saved {
                    src,
                    gamma,
                    beta,
                    mean: mean.clone(),
                    variance: variance.clone(),
                    mask: mask.clone(),
                    problem,
                };
                Self::lifted(prep.finish(state, dst), mean, variance, mask)
            }
            OpsKind::UnTracked(prep) => {
                let (dst, mean, variance, mask) = self.run();
                Self::lifted(prep.finish(dst), mean, variance, mask)
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "dst, mean, variance and mask")]
    fn run(
        self,
    ) -> (
        FloatTensor<B>,
        FloatTensor<B>,
        Option<FloatTensor<B>>,
        Option<IntTensor<B>>,
    ) {
        let primitive = |tensor: FloatTensor<Autodiff<B, C>>| tensor.into_primitive();
        let (dst, mean, variance, mask) = B::norm_forward(
            self.src.into_primitive(),
            self.residual.map(primitive).into(),
            self.gamma.map(primitive).into(),
            self.beta.map(primitive).into(),
            self.problem,
        );
        let mask = match mask {
            Mask::Some(mask) => Some(mask),
            Mask::None => None,
        };
        (dst, mean, variance.into_option(), mask)
    }

    fn lifted(
        dst: FloatTensor<Autodiff<B, C>>,
        mean: FloatTensor<B>,
        variance: Option<FloatTensor<B>>,
        mask: Option<IntTensor<B>>,
    ) -> Forward<Autodiff<B, C>> {
        let lifted = <Autodiff<B, C> as AutodiffBackend>::from_inner;
        (
            dst,
            lifted(mean),
            variance.map(lifted).into(),
            mask.map_or(Mask::None, Mask::Some),
        )
    }
}
