//! The help text about an operator's files: a line for each tensor that they may have.

use super::Operator;
use wgpu_norm::support::{Need, Slot};
use wgpu_norm::{Access, Norm, Operation, Pass, Tensor};

impl Operator {
    /// Its name on the command line.
    pub fn subcommand(&self) -> String {
        self.name().replace('_', "-")
    }

    /// The help text apart from the flags.
    pub fn help(&self) -> String {
        let mut slots = Operation::slots(&self.norm, &self.pass);
        // Running statistics last, as in the messages about results.
        slots.sort_by_key(|slot| slot.access == Access::InOut);
        let line = |slot: &Slot| {
            let optional = if self.is_optional(slot) {
                "optional: "
            } else {
                ""
            };
            let about = self.about(slot.tensor);
            format!("\n  {:<16} {optional}{about}", slot.tensor.name())
        };
        let read = slots.iter().filter(|slot| slot.access.reads());
        let written = slots.iter().filter(|slot| slot.access.writes());
        let mut help = format!(
            "{}\n\nTensors of IN:{}\n\nTensors of OUT:{}\n\n{}",
            self.about,
            read.map(line).collect::<String>(),
            written.map(line).collect::<String>(),
            self.of_types()
        );
        help += &format!(
            "\n\nAttributes not given by flags are read from IN's metadata, as text: {}. An op other than {} there is \
             a warning, and so are keys that nothing reads.",
            self.attributes().join(", "),
            self.name()
        );
        help
    }

    /// Whether a tensor may be missing from the files.
    fn is_optional(&self, slot: &Slot) -> bool {
        let always = match (slot.tensor, &self.norm) {
            // use_affine decides.
            (Tensor::Gamma, Norm::Layer { .. }) => true,
            // The command always keeps them.
            (tensor, norm) => norm.statistics().contains(&tensor),
        };
        slot.need != Need::Always && !always
    }

    /// Describes a tensor and its shape.
    fn about(&self, tensor: Tensor) -> String {
        let over_rows = self.norm.begin_norm_axis().is_some();
        let is_backward = matches!(self.pass, Pass::Backward(_));
        let (statistics, params) = self.shapes();
        let text = match tensor {
            Tensor::Src if over_rows && is_backward => {
                "the layer's input; with a residual, the forward pass's sum"
            }
            Tensor::Src => "the layer's input",
            Tensor::DiffDst => "the gradient of the layer's output, of src's shape",
            Tensor::Residual if over_rows => "added to src first, of src's shape",
            Tensor::Residual => "added to the layer's output, of src's shape",
            Tensor::Mean if matches!(self.norm, Norm::Axes { .. }) => {
                return format!(
                    "of {statistics}; mean_square in place of mean and variance if not centered"
                );
            }
            Tensor::Mean => return format!("of {statistics}"),
            Tensor::Variance => "biased, of mean's shape",
            Tensor::MeanSquare => return format!("the mean of squares, of {statistics}"),
            Tensor::Gamma => match self.norm {
                Norm::Layer { .. } => {
                    return format!(
                        "1 if only beta is there; unless use_affine is false; of shape {params}"
                    );
                }
                _ => return format!("1 if missing; of shape {params}"),
            },
            Tensor::Beta if is_backward && self.norm.has_gate() => {
                "the forward pass's, for a gate, an activation without a residual, or in gamma's absence; of gamma's shape"
            }
            Tensor::Beta if is_backward => {
                "the forward pass's, for an activation without a residual, or in gamma's absence; of gamma's shape"
            }
            Tensor::Beta => "0 if missing; of gamma's shape",
            Tensor::Gate => {
                "1 if missing; a factor of the layer's output, without an activation; of gamma's shape"
            }
            Tensor::DiffGate => {
                "with a gate and unless --param-grads says otherwise; of gamma's shape"
            }
            Tensor::Mask if is_backward => {
                "if a residual was added: the activation mask that the forward pass wrote"
            }
            Tensor::Mask => {
                "with a residual and an activation: the activation mask, U32, bit i of word w for element 32 · w + i"
            }
            Tensor::RunningMean => "with running_variance; becomes (1 - W) · old + W · mean",
            Tensor::RunningVariance => "with running_mean; becomes (1 - W) · old + W · variance",
            Tensor::Dst => self.formula(),
            Tensor::Sum => "with a residual: src + residual, the src of the gradient",
            Tensor::DiffSrc => "of src's shape",
            Tensor::DiffResidual => "with a mask; of src's shape",
            Tensor::DiffGamma | Tensor::DiffBeta if over_rows => {
                "with parameters and unless --param-grads says otherwise; of gamma's shape"
            }
            Tensor::DiffGamma | Tensor::DiffBeta => {
                "unless --param-grads says otherwise; of gamma's shape"
            }
            _ => "",
        };
        text.to_owned()
    }

    /// The shapes of statistics and parameters.
    fn shapes(&self) -> (&'static str, &'static str) {
        match &self.norm {
            Norm::Batch(_) => (
                "each channel: [C], or (broadcast) src's rank, with size 1 along the axes that are reduced",
                "[C], or (broadcast) src's rank, with size 1 along the axes that are reduced",
            ),
            Norm::Group { .. } => ("each group of a sample: [N, G]", "[C]"),
            Norm::Instance { .. } if self.pass == Pass::Inference => (
                "each channel of a sample: [N, C], or running statistics of all samples: [C]",
                "[C]",
            ),
            norm if norm.begin_norm_axis().is_some() => (
                "each row: src's axes before begin_norm_axis, or one axis for all of them",
                "src's axes from begin_norm_axis on, or one axis for all of them",
            ),
            Norm::Axes { .. } => (
                "src's sizes along the other axes than axes, or all axes with size 1 along these",
                "src's sizes along param_axes, or all axes with size 1 along the others",
            ),
            _ => ("each channel of a sample: [N, C]", "[C]"),
        }
    }

    /// The element types of results.
    fn of_types(&self) -> &'static str {
        match (&self.norm, &self.pass) {
            (Norm::Batch(_), Pass::Forward(_)) => {
                "dst has src's element type; mean and variance have running_mean's, else f32 (f64 for f64 data). \
                 16-bit statistics hold less, and a warning says where that matters: f16 holds no variance of 65,520 \
                 or more, nor one below 3e-8."
            }
            (_, Pass::Forward(_)) => {
                "Tensors of src's shape have src's element type; statistics are f32 (f64 for f64 data)."
            }
            (_, Pass::Backward(_)) => {
                "Tensors of src's shape have src's element type; gradients of parameters have the parameters', or \
                 without any the statistics'."
            }
            _ => "dst has src's element type.",
        }
    }
}
