//! What tests ask of a variant.

use crate::element::DType;
use crate::f16_encoder::F16Encoder;
use crate::kernels::params::COPIED_PARAMS;
use crate::kernels::source::VECTOR_VEC4S;
use crate::kernels::{Access, Constant, Epilogue, Variant};
use crate::options::Activation;

/// A language to which naga translates kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    SpirV,
    Hlsl,
    Msl,
    /// Desktop GLSL of a version.
    Glsl(u16),
    /// GLSL ES of a version.
    GlslEs(u16),
}

impl Variant {
    /// The languages that it must translate to: all that wgpu may ask for where it runs. f64 exists on
    /// Vulkan alone; encoding f16 and bf16 selects between integers, which desktop GLSL
    /// has from 4.50 on.
    pub fn targets(&self) -> &'static [Target] {
        use Target::{Glsl, GlslEs, Hlsl, Msl, SpirV};
        match [self.data, self.params, self.statistics] {
            _ if self.access == Access::LongWords => &[SpirV, Hlsl, Msl],
            // There are no sums of f64 over subgroups.
            [DType::F64, ..] if self.is("subgroups") => &[],
            [DType::F64, ..] => &[SpirV],
            // wgpu has no f16 on GL.
            _ if self.f16_encoder == F16Encoder::Cast => &[SpirV, Hlsl, Msl],
            [DType::F32, DType::F32, DType::F32] => &[SpirV, Hlsl, Msl, GlslEs(310), Glsl(430)],
            _ => &[SpirV, Hlsl, Msl, GlslEs(310), Glsl(450)],
        }
    }

    /// A name that tells variants of a kernel apart.
    pub fn label(&self) -> String {
        let name = self.kernel.entry().name();
        let types = format!("{}-{}-{}", self.data, self.params, self.statistics);
        let mut label = format!("{name}-{}-{types}", self.body.name());
        let Epilogue {
            activation,
            residual,
            zero_centered_gamma,
            gated,
        } = self.epilogue;
        for (on, name) in [
            (activation != Activation::None, activation.name()),
            (residual, "residual"),
            (zero_centered_gamma, "zero_centered_gamma"),
            (gated, "gated"),
        ] {
            if on {
                label += &format!("-{name}");
            }
        }
        let bound: Vec<_> = self.bound.iter().map(|tensor| tensor.name()).collect();
        label += &format!("-{}", bound.join("+"));
        for (on, name) in [
            (self.in_place, "in_place"),
            (self.pooled, "pooled"),
            (self.access == Access::LongWords, "long_words"),
            (self.f16_encoder == F16Encoder::Pack, "pack"),
            (self.f16_encoder == F16Encoder::Cast, "cast"),
        ] {
            if on {
                label += &format!("-{name}");
            }
        }
        for tensor in &self.exact {
            label += &format!("-exact_{}", tensor.name());
        }
        for (name, value) in &self.constants {
            match value {
                Constant::Flag(true) => label += &format!("-{name}"),
                Constant::Size(2) if *name == VECTOR_VEC4S => label += "-vectors",
                Constant::Size(copied) if *name == COPIED_PARAMS && *copied != 0 => {
                    label += &format!("-copied_{copied}");
                }
                Constant::Flag(false) | Constant::Size(_) => {}
            }
        }
        label
    }
}
