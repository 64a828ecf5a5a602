//! The cases to time: sets of shapes from real networks, and the cases built from them.

use super::operators::{Groups, Op};
use std::fmt;
use std::str::FromStr;
use wgpu_norm::{
    Activation, Backward, Channels, DType, DataFormat, Epilogue, Forward, GpuContext, Norm,
    Operation, Pass, Residual, Through,
};

/// A named set of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// For drivers that run on the CPU: a million elements or more
    Software,
    /// For GPUs: ResNet-50 at batch 50, Inception-v3 at batch 96, and larger
    Gpu,
    /// Small shapes, where latency counts
    Small,
}

impl Set {
    /// The set for the adapter's kind.
    pub fn of(gpu: &GpuContext) -> Self {
        match gpu.adapter_info().device_type {
            wgpu::DeviceType::Cpu => Self::Software,
            _ => Self::Gpu,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Gpu => "gpu",
            Self::Small => "small",
        }
    }

    /// Its shapes, written N × C × spatial.
    pub fn shapes(self, op: Op) -> &'static [&'static [usize]] {
        match (self, op.groups()) {
            (Self::Software, Groups::Channels) => &[
                &[4, 64, 112, 112],
                &[8, 64, 56, 56],
                &[32, 64, 56, 56],
                &[4, 256, 56, 56],
                &[16, 128, 28, 28],
                &[8, 512, 28, 28],
                &[32, 256, 14, 14],
                &[16, 1024, 14, 14],
                &[32, 2048, 7, 7],
                &[4, 64, 147, 147],
                &[16, 96, 35, 35],
                // Few long channels.
                &[20, 6, 65536],
                &[2, 3, 512, 512],
                &[4096, 256],
                &[65536, 64],
                &[4, 32, 64, 64, 64],
            ],
            (Self::Gpu, Groups::Channels) => &[
                &[50, 64, 112, 112],
                &[50, 64, 56, 56],
                &[50, 256, 56, 56],
                &[50, 128, 28, 28],
                &[50, 512, 28, 28],
                &[50, 256, 14, 14],
                &[50, 1024, 14, 14],
                &[50, 512, 7, 7],
                &[50, 2048, 7, 7],
                &[96, 64, 147, 147],
                &[96, 80, 73, 73],
                &[96, 96, 35, 35],
                &[96, 384, 8, 8],
                // Few long channels.
                &[20, 6, 65536],
                &[2, 3, 1024, 1024],
                &[65536, 64],
                &[4096, 256],
                &[131072, 1024],
                &[4, 32, 64, 64, 64],
                // Larger than most adapters' bindings.
                &[256, 256, 56, 56],
            ],
            (Self::Small, Groups::Channels) => &[
                &[64, 128],
                &[16, 1024, 1],
                &[8, 512, 7, 7],
                &[1, 64, 57, 57],
                &[1, 544, 15, 15],
                &[128, 2048],
            ],
            (Self::Software, Groups::Rows) => {
                &[&[4096, 768], &[512, 4096], &[65536, 64], &[16, 50257]]
            }
            (Self::Gpu, Groups::Rows) => {
                &[&[8192, 4096], &[65536, 768], &[1048576, 64], &[512, 50257]]
            }
            (Self::Small, Groups::Rows) => &[&[257, 768], &[128, 1, 1024]],
            // Diffusion transformers: samples × tokens × channels.
            (Self::Software, Groups::Tokens) => &[&[8, 256, 1152], &[2, 1024, 1536]],
            (Self::Gpu, Groups::Tokens) => &[
                &[64, 256, 1152],
                &[16, 1024, 1152],
                &[8, 4096, 1536],
                &[4, 4096, 3072],
            ],
            (Self::Small, Groups::Tokens) => &[&[1, 256, 1152], &[2, 77, 768]],
            // Diffusion models, detectors, style transfer.
            (Self::Software, Groups::OfSamples) => &[
                &[8, 256, 64, 64],
                &[32, 64, 56, 56],
                &[2, 320, 64, 64],
                &[8, 1280, 16, 16],
            ],
            (Self::Gpu, Groups::OfSamples) => &[
                &[8, 256, 64, 64],
                &[32, 64, 56, 56],
                &[16, 320, 64, 64],
                &[16, 1280, 16, 16],
                &[2, 128, 512, 512],
            ],
            (Self::Small, Groups::OfSamples) => &[&[1, 320, 32, 32], &[1, 64, 57, 57]],
            // ConvNeXt, segmentation.
            (Self::Software, Groups::Positions) => &[
                &[8, 96, 56, 56],
                &[8, 192, 28, 28],
                &[16, 384, 14, 14],
                &[1, 256, 64, 64],
                &[2, 64, 128, 128],
                &[4, 512, 1024],
            ],
            (Self::Gpu, Groups::Positions) => &[
                &[64, 96, 56, 56],
                &[64, 192, 28, 28],
                &[64, 384, 14, 14],
                &[8, 256, 64, 64],
                &[4, 64, 256, 256],
                &[16, 1024, 2048],
            ],
            (Self::Small, Groups::Positions) => &[&[1, 96, 28, 28], &[2, 256, 8, 8]],
        }
    }

    /// A few of its shapes, one of each kind: long and short planes, few long channels, channels last, rows.
    pub fn representatives(self, op: Op) -> &'static [&'static [usize]] {
        match (self, op.groups()) {
            (Self::Software, Groups::Channels) => &[
                &[8, 64, 56, 56],
                &[32, 256, 14, 14],
                &[32, 2048, 7, 7],
                &[2, 3, 512, 512],
                &[65536, 64],
            ],
            (Self::Software, Groups::Rows) => &[&[512, 4096], &[65536, 64]],
            (Self::Gpu, Groups::Channels) => &[
                &[50, 256, 56, 56],
                &[50, 1024, 14, 14],
                &[50, 2048, 7, 7],
                &[20, 6, 65536],
                &[65536, 64],
            ],
            (Self::Gpu, Groups::Rows) => &[&[8192, 4096], &[65536, 768]],
            (Self::Software, Groups::Tokens) => &[&[8, 256, 1152]],
            (Self::Gpu, Groups::Tokens) => &[&[16, 1024, 1152]],
            (Self::Software, Groups::OfSamples) => &[&[2, 320, 64, 64], &[32, 64, 56, 56]],
            (Self::Gpu, Groups::OfSamples) => &[&[8, 256, 64, 64], &[32, 64, 56, 56]],
            (Self::Software, Groups::Positions) => &[&[8, 96, 56, 56], &[16, 384, 14, 14]],
            (Self::Gpu, Groups::Positions) => &[&[64, 96, 56, 56], &[64, 384, 14, 14]],
            // These are few enough.
            (Self::Small, _) => self.shapes(op),
        }
    }
}

/// A shape, written `32x64x56x56`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&dims.join("x"))
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected sizes of 1 or more like 32x64x56x56".to_owned();
        let dims = text
            .split(['x', 'X', '×', '·'])
            .map(|size| match size.parse() {
                Ok(size) if size > 0 => Ok(size),
                _ => Err(expected()),
            });
        let dims = dims.collect::<Result<Vec<usize>, String>>()?;
        match dims.len() {
            2..=8 => Ok(Self(dims)),
            _ => Err(
                "expected a rank from 2 to 8, like 32x64x56x56; commas stand between shapes"
                    .to_owned(),
            ),
        }
    }
}

/// One thing to time.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The name of the set that it belongs to.
    pub set: &'static str,
    pub op: Op,
    /// N × C × spatial, whatever the format.
    pub shape: Shape,
    pub dtype: DType,
    /// The axis of the channels; none for an operator over rows.
    pub data_format: Option<DataFormat>,
    pub statistics: Through,
    pub param_grads: bool,
    pub activation: Activation,
    /// The bytes of the adapter's last-level cache, if they are known.
    pub cache: Option<u64>,
}

impl Case {
    /// The tensor's shape as stored in memory.
    pub fn dims(&self) -> Vec<usize> {
        let mut dims = self.shape.0.clone();
        if self.data_format == Some(DataFormat::Nxc)
            && let Some(spatial_and_channel) = dims.get_mut(1..)
        {
            spatial_and_channel.rotate_left(1);
        }
        dims
    }

    /// The number of elements of src.
    pub fn elements(&self) -> u64 {
        product(&self.shape.0)
    }

    /// The operation to time. It has gamma and beta; these and the statistics have the type of sums.
    pub fn operation(&self) -> Operation {
        use Op::*;
        let format = self.data_format.unwrap_or_default();
        let begin_norm_axis = -1;
        let norm = match self.op {
            BatchNorm | BatchNormForward | BatchNormInference => {
                Norm::Batch(Channels::Axis(format))
            }
            GroupNorm | GroupNormForward => {
                let groups = self.channel_groups();
                Norm::group(groups, format)
            }
            InstanceNorm | InstanceNormForward => Norm::instance(format),
            LayerNorm | LayerNormForward => Norm::layer(begin_norm_axis),
            RmsNorm | RmsNormForward => Norm::rms(begin_norm_axis),
            AdaptiveLayerNorm | AdaptiveLayerNormForward => {
                Norm::axes(&[begin_norm_axis], &[0, begin_norm_axis])
            }
            ChannelLayerNorm | ChannelLayerNormForward => Norm::axes(&[1], &[1]),
        };
        let backward = Backward::default().with_param_grads(self.param_grads);
        let pass = match self.op {
            BatchNorm => backward.with_through(self.statistics).into(),
            BatchNormInference => Pass::Inference,
            _ if self.op.is_gradient() => backward.into(),
            _ => Forward::default().into(),
        };
        let types = (self.dtype, self.dtype.accumulator());
        Operation::new(norm, pass, &self.dims(), types)
            .with_epilogue(Epilogue::new(Residual::None, self.activation))
    }

    /// The number of groups: 32, as in most networks, or the largest smaller number that divides the channels.
    fn channel_groups(&self) -> usize {
        let channels = self.shape.0.get(1).map_or(1, |&c| c.max(1));
        let mut groups = (1..=channels.min(32)).rev();
        groups
            .find(|&groups| channels.is_multiple_of(groups))
            .unwrap_or(1)
    }

    /// The elements moved under the applicable models, as multiples of n: first each tensor counted as often as the
    /// formula reads it, then with second reads served by a cache.
    pub fn models(&self) -> &'static [u64] {
        match (self.op, self.statistics, self.param_grads) {
            (Op::BatchNormInference, ..) => &[2],
            (op, ..) if !op.is_gradient() => &[3, 2],
            (_, Through::Batch, _) => &[5, 3],
            (_, Through::Constant, true) => &[3],
            // src is needed only to recompute the activation's argument.
            (_, Through::Constant, _) if self.activation == Activation::None => &[2],
            (_, Through::Constant, _) => &[3],
        }
    }

    /// The multiple of n that has to be moved: each tensor once, but batch norm's inputs twice if the cache cannot hold
    /// them between its two readings.
    pub fn limit(&self) -> Option<u64> {
        let inputs = self.bytes(self.op.large_tensors() - 1);
        let exceeded = self.cache.is_some_and(|cache| inputs > cache);
        let mut models = self.models().iter().copied();
        match self.op.groups() {
            Groups::Channels if exceeded => models.next(),
            _ => models.last(),
        }
    }

    /// The bytes that the accompanying copies move: those of the plain model.
    pub fn copied_bytes(&self) -> u64 {
        self.bytes(self.models().first().copied().unwrap_or(0))
    }

    /// The bytes of `times` times all elements.
    pub fn bytes(&self, times: u64) -> u64 {
        self.elements()
            .saturating_mul(self.dtype.size())
            .saturating_mul(times)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.op.name(), self.shape, self.dtype)?;
        if let Some(format) = self.data_format {
            write!(f, " {format}")?;
        }
        match self.activation {
            Activation::None => Ok(()),
            activation => write!(f, " {activation}"),
        }
    }
}

fn product(dims: &[usize]) -> u64 {
    dims.iter()
        .fold(1, |product: u64, &dim| product.saturating_mul(dim as u64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn shapes_read_as_they_print() {
        for text in ["64x128", "4x32x64x64x64"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        assert_eq!("2×3×4·5".parse::<Shape>().unwrap().0, [2, 3, 4, 5]);
        for text in ["", "4", "4x", "0x4", "-1x4", "4x4.5", "1x1x1x1x1x1x1x1x1"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    #[test]
    fn channels_last_moves_the_channel_alone() {
        let case = |data_format| Case {
            set: "custom",
            op: Op::BatchNorm,
            shape: Shape(vec![2, 3, 4, 5]),
            dtype: DType::Bf16,
            data_format: Some(data_format),
            statistics: Through::Batch,
            param_grads: true,
            activation: Activation::None,
            cache: None,
        };
        assert_eq!(case(DataFormat::Ncx).dims(), [2, 3, 4, 5]);
        assert_eq!(case(DataFormat::Nxc).dims(), [2, 4, 5, 3]);
        assert_eq!(case(DataFormat::Nxc).bytes(5), 1200);
        assert_eq!(case(DataFormat::Nxc).operation().types.params, DType::F32);
    }

    #[test]
    fn copies_move_what_the_operator_moves() {
        let case = |op, statistics| Case {
            set: "custom",
            op,
            shape: Shape(vec![2, 8]),
            dtype: DType::F32,
            data_format: None,
            statistics,
            param_grads: true,
            activation: Activation::None,
            cache: None,
        };
        let (batch, constant) = (Through::Batch, Through::Constant);
        for (op, statistics, times) in [
            (Op::BatchNorm, batch, 5),
            (Op::BatchNorm, constant, 3),
            (Op::RmsNorm, batch, 5),
            (Op::BatchNormForward, batch, 3),
            (Op::BatchNormInference, batch, 2),
            (Op::LayerNormForward, batch, 3),
            (Op::GroupNorm, batch, 5),
            (Op::InstanceNormForward, batch, 3),
        ] {
            assert_eq!(case(op, statistics).copied_bytes(), times * 64, "{op:?}");
        }
        // With constant statistics, the activation's argument is recomputed from src.
        for (activation, times) in [(Activation::None, 2), (Activation::Relu, 3)] {
            let frozen = Case {
                param_grads: false,
                activation,
                ..case(Op::BatchNorm, constant)
            };
            assert_eq!(frozen.models(), [times]);
        }
    }

    #[test]
    fn every_shape_of_a_set_can_be_given_by_hand() {
        for set in [Set::Software, Set::Gpu, Set::Small] {
            for &op in Op::value_variants() {
                for one in set.representatives(op) {
                    assert!(set.shapes(op).contains(one), "{one:?}");
                }
                for shape in set.shapes(op) {
                    let shape = Shape(shape.to_vec());
                    assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
                    let elements = product(&shape.0);
                    let large = set == Set::Software && op.groups() == Groups::Channels;
                    assert!(!large || elements >= 1_000_000);
                }
            }
        }
    }
}
