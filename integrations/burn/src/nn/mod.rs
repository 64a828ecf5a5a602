//! Burn's normalization layers, with its configs, fields, defaults, records and printed form; batch norm with what
//! follows it, in [`BatchNormRelu`] and [`BatchNormAddRelu`]; and layers that Burn lacks: [`LayerNorm2d`],
//! [`AdaLayerNorm`] and [`AdaGroupNorm`].
//!
//! Layers that Burn has, and their configs, convert to Burn's and back with `From`. Two conversions are missing: Burn's
//! `LayerNorm` hides its epsilon, so neither it nor Burn's `Normalization` converts to ours; and Burn's
//! `NormalizationConfig` may get variants that ours does not have.

mod adaptive;
mod batch_norm;
mod batch_norm_fused;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod layer_norm_2d;
mod normalization;
mod rms_norm;

pub use adaptive::{AdaGroupNorm, AdaGroupNormConfig, AdaLayerNorm, AdaLayerNormConfig};
pub use batch_norm::{BatchNorm, BatchNormConfig};
pub use batch_norm_fused::{BatchNormAddRelu, BatchNormRelu};
pub use group_norm::{GroupNorm, GroupNormConfig};
pub use instance_norm::{InstanceNorm, InstanceNormConfig};
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use layer_norm_2d::{LayerNorm2d, LayerNorm2dConfig};
pub use normalization::{Normalization, NormalizationConfig};
pub use rms_norm::{RmsNorm, RmsNormConfig};

/// Conversions in both directions between types with the same fields.
macro_rules! same_fields {
    ($ours:ty, $other:ty { $($field:ident),* }) => {
        impl From<$other> for $ours {
            fn from(other: $other) -> Self {
                Self { $($field: other.$field),* }
            }
        }

        impl From<$ours> for $other {
            fn from(ours: $ours) -> Self {
                Self { $($field: ours.$field),* }
            }
        }
    };
}
use same_fields;

/// Prints a layer like the one that it converts to.
macro_rules! printed_as {
    ($layer:ty, $other:ty) => {
        impl burn::module::ModuleDisplay for $layer {
            fn custom_settings(&self) -> Option<burn::module::DisplaySettings> {
                <$other>::from(self.clone()).custom_settings()
            }

            fn custom_content(
                &self,
                content: burn::module::Content,
            ) -> Option<burn::module::Content> {
                <$other>::from(self.clone()).custom_content(content)
            }
        }
    };
}
use printed_as;
