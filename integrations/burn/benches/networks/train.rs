//! Training steps of a block.

use super::blocks::Block;
use super::norms::Norms;
use burn::module::{ModuleMapper, Param};
use burn::optim::{GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Distribution, FloatDType, Tensor};

/// A block that learns the absolute values of its input, by steps of SGD on the mean of squared differences.
pub struct Training<B: Block> {
    block: Option<B>,
    optimizer: ModuleOptimizer,
    input: Tensor<4>,
    norms: Norms,
}

impl<B: Block> Training<B> {
    /// The initial weights and the input are the same for all norms.
    pub fn new(shape: [usize; 4], dtype: FloatDType, norms: Norms, device: &Device) -> Self {
        device.seed(1);
        let block = B::new(shape, device).materialize().map(&mut Cast(dtype));
        let input = Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), device).cast(dtype);
        Self {
            block: Some(block),
            optimizer: SgdConfig::new().init(),
            input: input.detach(),
            norms,
        }
    }

    /// A step forward, backward and of the optimizer, and its loss.
    pub fn step(&mut self) -> Tensor<1> {
        // Gradients of 16 bits would lose small numbers.
        const SCALE: f64 = 1024.0;
        let block = self
            .block
            .take()
            .expect("a block, which each step puts back");
        // In a network other layers come before the block, so it computes the gradient of its input, too.
        let input = self.input.clone().require_grad();
        let output = block.forward(input.clone(), self.norms);
        let difference = (output - self.input.clone().abs()).cast(FloatDType::F32);
        let loss = difference.powi_scalar(2).mean();
        let mut gradients = (loss.clone() * SCALE).backward();
        drop(input.grad_remove(&mut gradients));
        let gradients = GradientsParams::from_grads(gradients, &block);
        self.block = Some(self.optimizer.step(0.1 / SCALE, block, gradients));
        loss.detach()
    }
}

/// Turns a block's tensors into those of another element type.
struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let learned = param.is_require_grad();
        param.map(|tensor| tensor.cast(self.0).detach().set_require_grad(learned))
    }
}
