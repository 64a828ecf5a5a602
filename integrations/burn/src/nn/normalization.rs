use super::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig,
    LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig,
};
use burn::config::Config;
use burn::module::Module;
use burn::nn::{Identity, norm};
use burn::tensor::{Device, Tensor};

/// The config of [`Normalization`], like [`burn::nn::norm::NormalizationConfig`].
#[derive(Config, Debug)]
#[non_exhaustive]
pub enum NormalizationConfig {
    /// No layer.
    Identity,
    /// Batch norm.
    Batch(BatchNormConfig),
    /// Group norm.
    Group(GroupNormConfig),
    /// Instance norm.
    Instance(InstanceNormConfig),
    /// Layer norm.
    Layer(LayerNormConfig),
    /// RMS norm.
    Rms(RmsNormConfig),
}

/// Any of Burn's normalization layers: [`burn::nn::norm::Normalization`] with its variants and records.
#[derive(Module, Debug)]
#[non_exhaustive]
pub enum Normalization {
    /// No layer.
    Identity(Identity),
    /// Batch norm.
    Batch(BatchNorm),
    /// Group norm.
    Group(GroupNorm),
    /// Instance norm.
    Instance(InstanceNorm),
    /// Layer norm.
    Layer(LayerNorm),
    /// RMS norm.
    Rms(RmsNorm),
}

/// The code that is the same for every layer; `$size` is the config's field for the layer's size.
macro_rules! variants {
    ($($variant:ident($layer:ident, $config:ident.$size:ident)),* $(,)?) => {
        $(
            impl From<$config> for NormalizationConfig {
                fn from(config: $config) -> Self {
                    Self::$variant(config)
                }
            }

            impl From<$layer> for Normalization {
                fn from(layer: $layer) -> Self {
                    Self::$variant(layer)
                }
            }
        )*

        impl From<NormalizationConfig> for norm::NormalizationConfig {
            fn from(config: NormalizationConfig) -> Self {
                match config {
                    NormalizationConfig::Identity => Self::Identity,
                    $(NormalizationConfig::$variant(config) => Self::$variant(config.into()),)*
                }
            }
        }

        impl From<Normalization> for norm::Normalization {
            fn from(layer: Normalization) -> Self {
                match layer {
                    Normalization::Identity(layer) => Self::Identity(layer),
                    $(Normalization::$variant(layer) => Self::$variant(layer.into()),)*
                }
            }
        }

        impl NormalizationConfig {
            /// Creates the layer on a device.
            ///
            /// # Panics
            ///
            /// Like the layer's own config.
            pub fn init(&self, device: &Device) -> Normalization {
                match self {
                    Self::Identity => Identity::new().into(),
                    $(Self::$variant(config) => config.init(device).into(),)*
                }
            }

            /// The same config for `num_features` features: channels, or the size of the last axis.
            pub fn with_num_features(self, num_features: usize) -> Self {
                match self {
                    Self::Identity => self,
                    $(Self::$variant(config) => {
                        $config { $size: num_features, ..config }.into()
                    })*
                }
            }

            /// The number of features; 0 if there is no layer.
            pub fn num_features(&self) -> usize {
                match self {
                    Self::Identity => 0,
                    $(Self::$variant(config) => config.$size,)*
                }
            }
        }

        impl Normalization {
            /// The layer's output, of the input's shape.
            ///
            /// # Panics
            ///
            /// Like the layer's own `forward`.
            pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
                match self {
                    Self::Identity(layer) => layer.forward(input),
                    $(Self::$variant(layer) => layer.forward(input),)*
                }
            }
        }
    };
}

variants! {
    Batch(BatchNorm, BatchNormConfig.num_features),
    Group(GroupNorm, GroupNormConfig.num_channels),
    Instance(InstanceNorm, InstanceNormConfig.num_channels),
    Layer(LayerNorm, LayerNormConfig.d_model),
    Rms(RmsNorm, RmsNormConfig.d_model),
}

impl From<Identity> for Normalization {
    fn from(layer: Identity) -> Self {
        Self::Identity(layer)
    }
}

impl Normalization {
    /// The number of features; 0 if there is no layer.
    pub fn num_features(&self) -> usize {
        match self {
            Self::Identity(_) => 0,
            Self::Batch(layer) => layer.gamma.shape()[0],
            Self::Group(layer) => layer.num_channels,
            Self::Instance(layer) => layer.num_channels,
            Self::Layer(layer) => layer.gamma.shape()[0],
            Self::Rms(layer) => layer.gamma.shape()[0],
        }
    }
}
