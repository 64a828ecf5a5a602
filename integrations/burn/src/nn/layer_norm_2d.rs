use super::{LayerNorm, LayerNormConfig, printed_as, same_fields};
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor, assert_shape};
use wgpu_norm::Norm;

/// The config of [`LayerNorm2d`].
#[derive(Config, Debug)]
pub struct LayerNorm2dConfig {
    /// The number of channels.
    pub num_channels: usize,
    /// Added to the variance; ConvNeXt uses 1e-6. Default: 1e-5
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether the layer has beta. Default: true
    #[config(default = true)]
    pub bias: bool,
}

impl LayerNorm2dConfig {
    /// Creates the layer on a device.
    pub fn init(&self, device: &Device) -> LayerNorm2d {
        let config = LayerNormConfig {
            d_model: self.num_channels,
            epsilon: self.epsilon,
            bias: self.bias,
        };
        config.init(device).into()
    }
}

/// Layer norm over the channels of `[batch_size, channels, ...]`, as in ConvNeXt.
///
/// dst = gamma · (src − mean) / √(variance + epsilon) + beta, with the statistics of all channels at one position of a
/// sample. Fields and records are those of [`LayerNorm`], so a network that permuted its images around Burn's layer
/// keeps its records.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use burn_wgpu_norm::nn::LayerNorm2dConfig;
///
/// let device = Device::default();
/// let layer = LayerNorm2dConfig::new(2).with_epsilon(1e-6).init(&device);
/// // Two channels of one pixel.
/// let src = Tensor::<4>::from_floats([[[[1.0]], [[5.0]]]], &device);
/// let dst = layer.forward(src).into_data().try_to_vec::<f32>()?;
/// assert!((dst[0] + 1.0).abs() < 1e-4 && (dst[1] - 1.0).abs() < 1e-4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm2d {
    /// Scale of each channel.
    pub gamma: Param<Tensor<1>>,
    /// Shift of each channel.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

same_fields!(
    LayerNorm2d,
    LayerNorm {
        gamma,
        beta,
        epsilon
    }
);
printed_as!(LayerNorm2d, LayerNorm);

impl LayerNorm2d {
    /// The layer's output, of the input's shape.
    ///
    /// # Panics
    ///
    /// If the input has fewer than two axes, or its second axis does not have size `num_channels`; if gamma and beta
    /// differ in type, a panic of Burn's operations.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [num_channels] = self.gamma.shape().dims();
        assert_shape!(input, [_, num_channels, ..]);
        let layer = LayerNorm::from(self.clone());
        let norm = Norm::axes(&[1], &[1]);
        let dst = layer.over(norm).forward(&input);
        dst.unwrap_or_else(|| {
            let last = input.swap_dims(1, D - 1);
            nn::LayerNorm::from(layer).forward(last).swap_dims(1, D - 1)
        })
    }
}
