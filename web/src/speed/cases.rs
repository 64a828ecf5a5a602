//! The cases: operators, shapes and element types, named as the command names them, and the traffic of each.

use std::fmt;
use wgpu_norm::{
    Backward, Channels, DType, DataFormat, Forward, GpuContext, Norm, Operation, Pass,
};

/// A list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// For drivers that run on the CPU.
    Software,
    Gpu,
}

/// A layer, its shape (N × C × spatial) and its format.
type Layer = (Op, &'static [usize], Option<DataFormat>);

impl Set {
    /// The list for the adapter's kind.
    pub fn of(gpu: &GpuContext) -> Self {
        match is_software(gpu) {
            true => Self::Software,
            false => Self::Gpu,
        }
    }

    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Gpu => "gpu",
        }
    }

    /// Each layer in f32 and f16, forward and backward. The shapes are among those of the command's set of this name.
    pub fn cases(self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &(op, shape, data_format) in self.layers() {
            for dtype in [DType::F32, DType::F16] {
                for gradient in [false, true] {
                    cases.push(Case {
                        set: self.name(),
                        op,
                        gradient,
                        shape: shape.to_vec(),
                        dtype,
                        data_format,
                    });
                }
            }
        }
        cases
    }

    fn layers(self) -> &'static [Layer] {
        const NCX: Option<DataFormat> = Some(DataFormat::Ncx);
        const NXC: Option<DataFormat> = Some(DataFormat::Nxc);
        match self {
            Self::Gpu => &[
                (Op::BatchNorm, &[50, 256, 56, 56], NCX),
                (Op::BatchNorm, &[50, 256, 56, 56], NXC),
                (Op::BatchNorm, &[50, 512, 28, 28], NCX),
                (Op::BatchNorm, &[50, 512, 28, 28], NXC),
                (Op::LayerNorm, &[8192, 4096], None),
                (Op::RmsNorm, &[8192, 4096], None),
                (Op::GroupNorm, &[16, 320, 64, 64], NCX),
                (Op::ChannelLayerNorm, &[64, 96, 56, 56], None),
            ],
            Self::Software => &[
                (Op::BatchNorm, &[8, 64, 56, 56], NCX),
                (Op::BatchNorm, &[8, 64, 56, 56], NXC),
                (Op::LayerNorm, &[512, 4096], None),
                (Op::RmsNorm, &[512, 4096], None),
                (Op::GroupNorm, &[2, 320, 64, 64], NCX),
                (Op::ChannelLayerNorm, &[16, 384, 14, 14], None),
            ],
        }
    }
}

/// Whether shaders run on a CPU. A browser need not say so, but the names of such drivers do.
pub fn is_software(gpu: &GpuContext) -> bool {
    let info = gpu.adapter_info();
    let name = info.name.to_lowercase();
    info.device_type == wgpu::DeviceType::Cpu
        || ["swiftshader", "llvmpipe", "basic render"]
            .iter()
            .any(|software| name.contains(software))
}

/// A layer, forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    BatchNorm,
    LayerNorm,
    RmsNorm,
    GroupNorm,
    /// Layer norm over the channels of each position, NCX.
    ChannelLayerNorm,
}

/// One thing to time.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The name of its list.
    pub set: &'static str,
    pub op: Op,
    pub gradient: bool,
    /// N × C × spatial, whatever the format.
    pub shape: Vec<usize>,
    pub dtype: DType,
    /// None for an operator that has no formats.
    pub data_format: Option<DataFormat>,
}

impl Case {
    /// The operator's name in the command: a gradient is named by its layer alone.
    pub fn op_name(&self) -> String {
        let pass = if self.gradient { "" } else { "-forward" };
        let norm = match self.op {
            Op::BatchNorm => "batch-norm",
            Op::LayerNorm => "layer-norm",
            Op::RmsNorm => "rms-norm",
            Op::GroupNorm => "group-norm",
            Op::ChannelLayerNorm => "channel-layer-norm",
        };
        format!("{norm}{pass}")
    }

    /// The shape as text, like 50x256x56x56.
    pub fn shape_text(&self) -> String {
        let sizes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        sizes.join("x")
    }

    /// With gamma and beta, which have the type of sums, like the statistics.
    pub fn operation(&self) -> Operation {
        let format = self.data_format.unwrap_or_default();
        let norm = match self.op {
            Op::BatchNorm => Norm::Batch(Channels::Axis(format)),
            Op::LayerNorm => Norm::layer(-1),
            Op::RmsNorm => Norm::rms(-1),
            Op::GroupNorm => Norm::group(self.channel_groups(), format),
            Op::ChannelLayerNorm => Norm::axes(&[1], &[1]),
        };
        let pass: Pass = match self.gradient {
            true => Backward::default().with_param_grads(true).into(),
            false => Forward::default().into(),
        };
        let types = (self.dtype, self.dtype.accumulator());
        Operation::new(norm, pass, &self.dims(), types)
    }

    /// The tensor's sizes as in memory.
    fn dims(&self) -> Vec<usize> {
        let mut dims = self.shape.clone();
        if self.data_format == Some(DataFormat::Nxc)
            && let Some(spatial_and_channel) = dims.get_mut(1..)
        {
            spatial_and_channel.rotate_left(1);
        }
        dims
    }

    /// 32 groups, or the largest smaller number that divides the channels.
    fn channel_groups(&self) -> usize {
        let channels = self.shape.get(1).map_or(1, |&channels| channels.max(1));
        let mut groups = (1..=channels.min(32)).rev();
        groups
            .find(|&groups| channels.is_multiple_of(groups))
            .unwrap_or(1)
    }

    /// How often each element moves: first with each tensor counted as often as the formula reads it, then with second
    /// reads served by a cache.
    pub fn models(&self) -> [u64; 2] {
        match self.gradient {
            true => [5, 3],
            false => [3, 2],
        }
    }

    /// The bytes of `times` times all elements.
    pub fn bytes(&self, times: u64) -> u64 {
        let sizes = self.shape.iter().map(|&size| size as u64);
        let elements = sizes.fold(1, u64::saturating_mul);
        elements
            .saturating_mul(self.dtype.size())
            .saturating_mul(times)
    }

    /// The bytes of the tensors of src's shape.
    pub fn tensor_bytes(&self) -> u64 {
        self.bytes(if self.gradient { 3 } else { 2 })
    }

    /// The bytes that a copy for comparison moves: those of the plain model.
    pub fn copied_bytes(&self) -> u64 {
        let [plain, _] = self.models();
        self.bytes(plain)
    }
}

/// As the command prints it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, shape, dtype) = (self.op_name(), self.shape_text(), self.dtype);
        write!(f, "{op} {shape} {dtype}")?;
        match self.data_format {
            Some(format) => write!(f, " {format}"),
            None => Ok(()),
        }
    }
}
