//! Norms whose scale and shift are given for each sample.

use super::LayerNorm;
use crate::forward::Layer;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Tensor, assert_shape};
use wgpu_norm::{DataFormat, Norm};

/// The config of [`AdaLayerNorm`].
#[derive(Config, Debug)]
pub struct AdaLayerNormConfig {
    /// The size of the last axis.
    pub d_model: usize,
    /// Added to the variance; DiT uses 1e-6. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

impl AdaLayerNormConfig {
    /// Creates the layer.
    pub fn init(&self) -> AdaLayerNorm {
        AdaLayerNorm {
            d_model: self.d_model,
            epsilon: self.epsilon,
        }
    }
}

/// Adaptive layer norm over the last axis of `[batch_size, ..., d_model]`, as in diffusion transformers.
///
/// dst = (1 + scale) · (src − mean) / √(variance + epsilon) + shift. scale and shift, of `[batch_size, d_model]`, are
/// given for each sample. The layer has no parameters: a linear layer of the network computes scale and shift from a
/// condition, often those of several layers at once.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_wgpu_norm::nn::AdaLayerNormConfig;
///
/// let device = Device::default().autodiff();
/// let linear = LinearConfig::new(8, 2 * 4).init(&device);
/// let layer = AdaLayerNormConfig::new(4).init();
/// // Two samples of three tokens, and the condition of each sample.
/// let tokens = Tensor::<3>::ones([2, 3, 4], &device);
/// let condition = Tensor::<2>::ones([2, 8], &device);
/// let [scale, shift] = linear.forward(condition).chunk(2, 1).try_into().unwrap();
/// let dst = layer.forward(tokens, scale, shift);
/// assert_eq!(dst.dims(), [2, 3, 4]);
/// ```
#[derive(Module, Debug)]
pub struct AdaLayerNorm {
    /// The size of the last axis.
    pub d_model: usize,
    /// Added to the variance.
    pub epsilon: f64,
}

impl AdaLayerNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or its last axis does not have size `d_model`; if scale or shift does not
    /// have shape `[batch_size, d_model]`. If scale and shift differ in type, or differ from the input's where Burn
    /// runs the layer, a panic of Burn's operations.
    pub fn forward<const D: usize>(
        &self,
        input: Tensor<D>,
        scale: Tensor<2>,
        shift: Tensor<2>,
    ) -> Tensor<D> {
        assert_shape!(input, [_, .., self.d_model]);
        let batch_size = input.dims()[0];
        assert_shape!(scale, [batch_size, self.d_model]);
        assert_shape!(shift, [batch_size, self.d_model]);
        let norm = Norm::axes(&[-1], &[0, -1]);
        let plain = |input: Tensor<D>| {
            let gamma = Tensor::<1>::ones([self.d_model], &input.device()).cast(input.dtype());
            let layer = LayerNorm {
                gamma: Param::from_tensor(gamma).set_require_grad(false),
                beta: None,
                epsilon: self.epsilon,
            };
            nn::LayerNorm::from(layer).forward(input)
        };
        adapted(norm, self.epsilon, input, [scale, shift], D - 1, plain)
    }
}

/// The config of [`AdaGroupNorm`].
#[derive(Config, Debug)]
pub struct AdaGroupNormConfig {
    /// The number of groups, a divisor of the number of channels.
    pub num_groups: usize,
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

impl AdaGroupNormConfig {
    /// Creates the layer.
    ///
    /// # Panics
    ///
    /// If `num_groups` does not divide `num_channels`.
    pub fn init(&self) -> AdaGroupNorm {
        let (groups, channels) = (self.num_groups, self.num_channels);
        assert!(
            channels.is_multiple_of(groups),
            "num_groups: expected a divisor of num_channels ({channels}), got {groups}"
        );
        AdaGroupNorm {
            num_groups: groups,
            num_channels: channels,
            epsilon: self.epsilon,
        }
    }
}

/// Adaptive group norm over `[batch_size, channels, ...]`, as in diffusion U-Nets; with a group for each channel,
/// adaptive instance norm.
///
/// dst = (1 + scale) · (src − mean) / √(variance + epsilon) + shift, with the statistics of each group of channels of a
/// sample. scale and shift, of `[batch_size, channels]`, are given for each sample, as for [`AdaLayerNorm`].
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use burn_wgpu_norm::nn::AdaGroupNormConfig;
///
/// let device = Device::default();
/// let layer = AdaGroupNormConfig::new(1, 2).init();
/// // Two samples of two channels of one element.
/// let src = Tensor::<3>::from_floats([[[1.0], [5.0]], [[1.0], [5.0]]], &device);
/// let scale = Tensor::<2>::from_floats([[0.0, 0.0], [1.0, 1.0]], &device);
/// let shift = Tensor::<2>::from_floats([[0.0, 0.0], [3.0, 3.0]], &device);
/// let dst = layer.forward(src, scale, shift).into_data().try_to_vec::<f32>()?;
/// for (got, want) in dst.into_iter().zip([-1.0, 1.0, 1.0, 5.0]) {
///     assert!((got - want).abs() < 1e-4);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Module, Debug)]
pub struct AdaGroupNorm {
    /// The number of groups.
    pub num_groups: usize,
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
}

impl AdaGroupNorm {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or its second axis does not have size `num_channels`; if scale or shift
    /// does not have shape `[batch_size, num_channels]`. If scale and shift differ in type, or differ from the input's
    /// where Burn runs the layer, a panic of Burn's operations.
    pub fn forward<const D: usize>(
        &self,
        input: Tensor<D>,
        scale: Tensor<2>,
        shift: Tensor<2>,
    ) -> Tensor<D> {
        assert_shape!(input, [_, self.num_channels, ..]);
        let shape = input.dims();
        let batch_size = shape[0];
        assert_shape!(scale, [batch_size, self.num_channels]);
        assert_shape!(shift, [batch_size, self.num_channels]);
        let (groups, channels) = (batch_size * self.num_groups, batch_size * self.num_channels);
        let norm = Norm::group(groups, DataFormat::Ncx);
        if shape.contains(&0) {
            // There is nothing to normalize, and a reshape takes size 0 to mean the old size.
            return adapted(norm, self.epsilon, input, [scale, shift], 1, |input| input);
        }
        // One sample with the groups and channels of all, so that each channel has its own parameters.
        let input = input.reshape([1, channels, shape[2..].iter().product()]);
        let params = [scale, shift].map(|param| param.reshape([channels]));
        let plain = |input| {
            let layer = nn::GroupNorm {
                gamma: None,
                beta: None,
                num_groups: groups,
                num_channels: channels,
                epsilon: self.epsilon,
                affine: false,
            };
            layer.forward(input)
        };
        let dst = adapted(norm, self.epsilon, input, params, 1, plain);
        dst.reshape(shape)
    }
}

/// A norm with scale and shift, which vary along the first axis and this one. If Burn has to run it: `plain`, which is
/// the norm without them, and then they.
fn adapted<const D: usize, const P: usize>(
    norm: Norm,
    epsilon: f64,
    input: Tensor<D>,
    [scale, shift]: [Tensor<P>; 2],
    axis: usize,
    plain: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Tensor<D> {
    let layer = Layer::new(norm, Some(scale.clone()), Some(shift.clone()), epsilon);
    let dst = layer.with_zero_centered_gamma().forward(&input);
    dst.unwrap_or_else(|| {
        let (sizes, mut shape) = (input.dims(), [1; D]);
        (shape[0], shape[axis]) = (sizes[0], sizes[axis]);
        plain(input) * (scale + 1.0).reshape(shape) + shift.reshape(shape)
    })
}
