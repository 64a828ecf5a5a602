//! What help says of an operator's files: a line for each tensor that it may have.

use super::{Operator, PARAM_GRADS};
use wgpu_norm::{Need, Norm, Operation, Pass, Tensor};

impl Operator {
    /// Its name on the command line.
    pub fn subcommand(&self) -> String {
        self.name().replace('_', "-")
    }

    /// What help says but for the flags.
    pub fn help(&self) -> String {
        let slots = Operation::slots(&self.norm, &self.pass);
        let lines = |head: &str, there: &dyn Fn(wgpu_norm::Access) -> bool| {
            let slots = slots.iter().filter(|slot| there(slot.access));
            let lines = slots.map(|slot| {
                let optional = match slot.need {
                    Need::Always => "",
                    _ => "optional: ",
                };
                let about = self.about(slot.tensor);
                format!("\n  {:<16} {optional}{about}", slot.tensor.name())
            });
            format!("\n\n{head}{}", lines.collect::<String>())
        };
        let mut help = self.about.to_owned();
        help += &lines("Tensors of IN:", &|access| access.reads());
        help += &lines("Tensors of OUT:", &|access| access.writes());
        help += &format!(
            "\n\n{}Data have src's element type, a gradient of gamma or beta has gamma's, or without one that of the statistics.",
            self.of_statistics()
        );
        let attributes = self.flags();
        let attributes = attributes.iter().map(|flag| flag.get_id().as_str());
        let attributes: Vec<_> = attributes.filter(|name| *name != PARAM_GRADS).collect();
        help += &format!(
            "\n\nAttributes that no flag gives may stand in IN's metadata, as text: {}. There, op other than {} is a warning.",
            attributes.join(", "),
            self.name()
        );
        help
    }

    /// What a tensor is, and its shape.
    fn about(&self, tensor: Tensor) -> String {
        let over_rows = self.norm.unit() == "row";
        let (statistics, params) = self.shapes();
        let is_backward = matches!(self.pass, Pass::Backward(_));
        let is_inference = matches!(self.pass, Pass::Inference);
        let text = match tensor {
            Tensor::Src if over_rows && is_backward => {
                "the layer's input, with a residual the forward pass's sum"
            }
            Tensor::Src => "the layer's input",
            Tensor::DiffDst => "the gradient of the layer's output, of src's shape",
            Tensor::Residual if over_rows => "added to src first, of src's shape",
            Tensor::Residual => "added to the layer's output, of src's shape",
            Tensor::Mean => return format!("of {statistics}"),
            Tensor::Variance => "biased, of mean's shape",
            Tensor::MeanSquare => return format!("the mean of squares, of {statistics}"),
            Tensor::Gamma => match self.norm {
                Norm::Layer { .. } => return format!("with use_affine; {params}"),
                _ => return format!("1 without it; {params}"),
            },
            Tensor::Beta if is_backward => {
                "the forward pass's, with an activation and no residual; of gamma's shape"
            }
            Tensor::Beta => "0 without it; of gamma's shape",
            Tensor::Mask if is_backward => {
                "what passed the activation, as the forward pass wrote it, where a residual was added"
            }
            Tensor::Mask => {
                "with a residual and an activation, what passed that: U32, bit i of word w for element 32 · w + i"
            }
            Tensor::RunningMean => "with running_variance; becomes (1 - W) · old + W · mean",
            Tensor::RunningVariance => "with running_mean; becomes (1 - W) · old + W · variance",
            Tensor::Dst => match &self.norm {
                Norm::Rms { .. } => "gamma · x / √(mean_square + epsilon), x = src + residual",
                Norm::Layer { .. } => {
                    "gamma · (x - mean) / √(variance + epsilon) + beta, x = src + residual"
                }
                _ => "activation(gamma · (src - mean) / √(variance + epsilon) + beta + residual)",
            },
            Tensor::Sum => "with a residual, src + residual: the gradient's src",
            Tensor::DiffSrc => "of src's shape",
            Tensor::DiffResidual => "with a mask; of src's shape",
            Tensor::DiffGamma | Tensor::DiffBeta if over_rows => {
                "with gamma and unless --param-grads says otherwise; of gamma's shape"
            }
            Tensor::DiffGamma | Tensor::DiffBeta => {
                "unless --param-grads says otherwise; of gamma's shape"
            }
            _ if is_inference => "given",
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
            Norm::Layer { .. } | Norm::Rms { .. } => (
                "each row: src's axes before begin_norm_axis, or one axis for all of them",
                "src's axes from begin_norm_axis on, or one axis for all of them",
            ),
            _ => ("each channel of a sample: [N, C]", "[C]"),
        }
    }

    /// The element type of statistics that are written.
    fn of_statistics(&self) -> &'static str {
        match (&self.norm, &self.pass) {
            (Norm::Batch(_), Pass::Forward(_)) => {
                "mean and variance have the element type of running_mean, else f32 (f64 of f64 data). Those of 16 bits hold \
                 less, and a warning says where that shows: an f16 has no variance from 65,520 on, nor one below 3e-8. "
            }
            (_, Pass::Forward(_)) => "Statistics are f32 (f64 of f64 data). ",
            _ => "",
        }
    }
}
