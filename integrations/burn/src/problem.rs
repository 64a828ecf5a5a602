//! Which layer, which way, on which tensors: all that a plan follows from.

use crate::way::Launch;
use burn::tensor::DType as BurnDType;
use wgpu_norm::export::Plan;
use wgpu_norm::{
    Activation, BackwardOperands, BatchNormForwardOperands, BatchNormOptions, DType, DTypes,
    DataFormat, Error, GroupNormForwardOperands, GroupNormOptions, InferenceOperands,
    LayerNormForwardOperands, LayerNormOptions, ParamGrads, Profile, RmsNormForwardOperands,
    RmsNormOptions,
};

/// A layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// Statistics of each channel, the second axis.
    Batch { after: After },
    /// Of each group of channels of a sample.
    Group { groups: usize },
    /// Of the last axis.
    Layer,
    /// The mean square of the last axis.
    Rms,
}

/// What follows batch norm in the same passes over memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum After {
    /// Nothing.
    Nothing,
    /// ReLU. The gradient finds again what passed.
    Relu,
    /// A residual is added, then ReLU. The forward pass writes a mask of what passed.
    AddRelu,
}

/// What is computed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The output and the statistics.
    Forward,
    /// The output alone: by given statistics, or of a layer whose statistics nobody needs.
    Inference,
    /// The gradients, those of gamma and beta if `params`.
    Backward { params: bool },
}

/// A layer on tensors of a shape and types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Chosen when the layer is called: Burn may run it later.
    pub launch: Launch,
    pub norm: Norm,
    pub pass: Pass,
    pub shape: Vec<usize>,
    pub data: BurnDType,
    /// Of gamma and beta.
    pub params: BurnDType,
    pub gamma: bool,
    pub beta: bool,
    /// The bits of epsilon, which are hashed.
    pub epsilon: u64,
}

impl Problem {
    /// Another pass of the same layer on the same tensors.
    pub fn of(&self, pass: Pass) -> Self {
        Self {
            pass,
            ..self.clone()
        }
    }

    /// The type of the statistics: they are kept as exactly as sums are.
    pub fn statistics(&self) -> BurnDType {
        match self.data {
            BurnDType::F64 => BurnDType::F64,
            _ => BurnDType::F32,
        }
    }

    /// The shape of the statistics.
    pub fn statistics_shape(&self) -> Vec<usize> {
        let axis = |axis: usize| self.shape.get(axis).copied().unwrap_or(1);
        match self.norm {
            Norm::Batch { .. } => vec![axis(1)],
            Norm::Group { groups } => vec![axis(0), groups],
            Norm::Layer | Norm::Rms => {
                let leading = self.shape.len().saturating_sub(1);
                self.shape.iter().take(leading).copied().collect()
            }
        }
    }

    /// Whether there are a residual, its gradient, and a mask.
    pub fn has_residual(&self) -> bool {
        self.norm
            == Norm::Batch {
                after: After::AddRelu,
            }
    }

    /// Whether the gradient reads beta: to find again what passed ReLU.
    pub fn gradient_reads_beta(&self) -> bool {
        self.beta && self.norm == Norm::Batch { after: After::Relu }
    }

    /// Whether a forward pass keeps the statistics of rows for the gradient.
    fn keeps_statistics(&self) -> bool {
        self.pass == Pass::Forward
    }

    /// The shape of the mask: a bit for each element, in words of 32.
    pub fn mask_shape(&self) -> Vec<usize> {
        vec![self.shape.iter().product::<usize>().div_ceil(32)]
    }

    /// The shape of gamma and beta.
    pub fn params_shape(&self) -> Vec<usize> {
        let size = match self.norm {
            Norm::Batch { .. } | Norm::Group { .. } => self.shape.get(1),
            Norm::Layer | Norm::Rms => self.shape.last(),
        };
        vec![size.copied().unwrap_or(1)]
    }

    /// What runs it on a device.
    pub fn plan(&self, profile: &Profile) -> Result<Plan, Error> {
        let types = DTypes {
            data: dtype(self.data)?,
            params: dtype(self.params)?,
            statistics: dtype(self.statistics())?,
        };
        match self.norm {
            Norm::Batch { after } => self.batch_norm(profile, types, after),
            Norm::Group { groups } => self.group_norm(profile, types, groups),
            Norm::Layer => self.layer_norm(profile, types),
            Norm::Rms => self.rms_norm(profile, types),
        }
    }

    fn batch_norm(&self, profile: &Profile, types: DTypes, after: After) -> Result<Plan, Error> {
        let options = BatchNormOptions {
            data_format: DataFormat::Ncx,
            param_grads: self.param_grads(),
            activation: match after {
                After::Nothing => Activation::None,
                After::Relu | After::AddRelu => Activation::Relu,
            },
            ..BatchNormOptions::new(self.epsilon())
        };
        let (shape, gamma, beta) = (&self.shape, self.gamma, self.beta);
        let residual = self.has_residual();
        Ok(match self.pass {
            Pass::Forward => {
                let operands = BatchNormForwardOperands {
                    gamma,
                    beta,
                    residual,
                    ..Default::default()
                };
                options
                    .plan_forward(profile, shape, types, operands)?
                    .into()
            }
            Pass::Inference => {
                let operands = InferenceOperands {
                    gamma,
                    beta,
                    residual,
                };
                options
                    .plan_inference(profile, shape, types, operands)?
                    .into()
            }
            Pass::Backward { .. } => {
                let operands = BackwardOperands {
                    gamma,
                    beta: self.gradient_reads_beta(),
                    mask: residual,
                };
                options
                    .plan_backward(profile, shape, types, operands)?
                    .into()
            }
        })
    }

    fn group_norm(&self, profile: &Profile, types: DTypes, groups: usize) -> Result<Plan, Error> {
        let options = GroupNormOptions {
            epsilon: self.epsilon(),
            data_format: DataFormat::Ncx,
            param_grads: self.param_grads(),
            ..GroupNormOptions::new(groups)
        };
        let (shape, gamma, beta) = (&self.shape, self.gamma, self.beta);
        Ok(match self.pass {
            Pass::Backward { .. } => options.plan_backward(profile, shape, types, gamma)?.into(),
            Pass::Forward | Pass::Inference => {
                let operands = GroupNormForwardOperands {
                    gamma,
                    beta,
                    ..Default::default()
                };
                options
                    .plan_forward(profile, shape, types, operands)?
                    .into()
            }
        })
    }

    fn layer_norm(&self, profile: &Profile, types: DTypes) -> Result<Plan, Error> {
        let options = LayerNormOptions {
            use_affine: self.gamma,
            epsilon: self.epsilon(),
            param_grads: self.param_grads(),
            ..LayerNormOptions::default()
        };
        Ok(match self.pass {
            Pass::Backward { .. } => options.plan_backward(profile, &self.shape, types)?.into(),
            Pass::Forward | Pass::Inference => {
                let operands = LayerNormForwardOperands {
                    beta: self.beta,
                    keep_statistics: self.keeps_statistics(),
                    ..Default::default()
                };
                options
                    .plan_forward(profile, &self.shape, types, operands)?
                    .into()
            }
        })
    }

    fn rms_norm(&self, profile: &Profile, types: DTypes) -> Result<Plan, Error> {
        let options = RmsNormOptions {
            epsilon: self.epsilon(),
            param_grads: self.param_grads(),
            ..RmsNormOptions::default()
        };
        let (shape, gamma) = (&self.shape, self.gamma);
        Ok(match self.pass {
            Pass::Backward { .. } => options.plan_backward(profile, shape, types, gamma)?.into(),
            Pass::Forward | Pass::Inference => {
                let operands = RmsNormForwardOperands {
                    gamma,
                    keep_statistics: self.keeps_statistics(),
                    ..Default::default()
                };
                options
                    .plan_forward(profile, shape, types, operands)?
                    .into()
            }
        })
    }

    fn epsilon(&self) -> f64 {
        f64::from_bits(self.epsilon)
    }

    fn param_grads(&self) -> ParamGrads {
        match self.pass {
            Pass::Backward { params: false } => ParamGrads::Frozen,
            _ => ParamGrads::Both,
        }
    }
}

/// An element type by the library's name; an error for one that no layer has.
pub fn dtype(dtype: BurnDType) -> Result<DType, Error> {
    match dtype {
        BurnDType::F32 | BurnDType::Flex32 => Ok(DType::F32),
        BurnDType::F16 => Ok(DType::F16),
        BurnDType::BF16 => Ok(DType::Bf16),
        BurnDType::F64 => Ok(DType::F64),
        other => Err(Error::Argument {
            argument: "element type",
            expected: "f32, flex32, f16, bf16 or f64".to_owned(),
            got: format!("{other:?}"),
        }),
    }
}
