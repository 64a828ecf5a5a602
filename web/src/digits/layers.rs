//! The layers that wgpu-norm does not compute. Each function binds a command to the buffers that it reads and writes.

use super::kernel::{Command, Constants, Extent, Kernels, kernel};
use super::param::Param;
use wgpu_norm::Error;
use wgpu_norm::wgpu::Buffer;

/// The sizes of a 3×3 convolution with padding 1. Images are square.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub src_channels: usize,
    pub src_side: usize,
    pub dst_channels: usize,
    pub stride: usize,
}

impl Shape {
    /// The rows, and the columns, of an image of dst.
    pub const fn dst_side(&self) -> usize {
        self.src_side.div_ceil(self.stride)
    }

    /// The elements of an image of dst.
    pub const fn dst_len(&self) -> usize {
        self.dst_channels * self.dst_side() * self.dst_side()
    }

    /// The terms of each element of dst, a weight each.
    pub const fn terms(&self) -> usize {
        self.src_channels * 9
    }

    fn constants(&self) -> Constants {
        vec![
            ("SRC_CHANNELS", self.src_channels),
            ("SRC_SIDE", self.src_side),
            ("DST_CHANNELS", self.dst_channels),
            ("DST_SIDE", self.dst_side()),
            ("STRIDE", self.stride),
        ]
    }
}

/// A convolution. It has no bias, which would do nothing before a norm.
#[derive(Debug)]
pub struct Convolution {
    shape: Shape,
    pub weight: Param,
}

impl Convolution {
    pub fn new(kernels: &Kernels, shape: Shape, weight: &[f32]) -> Result<Self, Error> {
        Ok(Self {
            shape,
            weight: Param::new(&kernels.gpu, "convolution weight", weight)?,
        })
    }

    pub fn forward(&self, kernels: &Kernels, src: &Buffer, dst: &Buffer) -> Command {
        let buffers = [src, &self.weight.value, dst];
        let (constants, extent) = (self.shape.constants(), Extent::Elements(dst));
        kernels.bind(kernel!("convolution"), constants, &buffers, extent)
    }

    pub fn src_gradient(&self, kernels: &Kernels, diff_dst: &Buffer, diff_src: &Buffer) -> Command {
        let buffers = [diff_dst, &self.weight.value, diff_src];
        let (constants, extent) = (self.shape.constants(), Extent::Elements(diff_src));
        kernels.bind(kernel!("convolution_src"), constants, &buffers, extent)
    }

    pub fn weight_gradient(&self, kernels: &Kernels, src: &Buffer, diff_dst: &Buffer) -> Command {
        let buffers = [src, diff_dst, &self.weight.gradient];
        let (constants, extent) = (
            self.shape.constants(),
            Extent::Elements(&self.weight.gradient),
        );
        kernels.bind(kernel!("convolution_weight"), constants, &buffers, extent)
    }
}

/// A bias for each channel, and ReLU: what follows a convolution in a network without norms.
#[derive(Debug)]
pub struct Bias {
    channels: usize,
    constants: Constants,
    pub bias: Param,
}

impl Bias {
    /// Biases of 0, for images of `side` × `side` elements in each channel.
    pub fn new(kernels: &Kernels, channels: usize, side: usize) -> Result<Self, Error> {
        Ok(Self {
            channels,
            constants: vec![("CHANNELS", channels), ("AREA", side * side)],
            bias: Param::new(&kernels.gpu, "convolution bias", &vec![0.0; channels])?,
        })
    }

    pub fn forward(&self, kernels: &Kernels, src: &Buffer, dst: &Buffer) -> Command {
        let buffers = [src, &self.bias.value, dst];
        let (constants, extent) = (self.constants.clone(), Extent::Elements(dst));
        kernels.bind(kernel!("bias_relu"), constants, &buffers, extent)
    }

    pub fn gradient(
        &self,
        kernels: &Kernels,
        dst: &Buffer,
        diff_dst: &Buffer,
        diff_src: &Buffer,
    ) -> Command {
        let buffers = [dst, diff_dst, diff_src, &self.bias.gradient];
        let (constants, extent) = (self.constants.clone(), Extent::Workgroups(self.channels));
        kernels.bind(kernel!("bias_relu_gradient"), constants, &buffers, extent)
    }
}

/// A dense layer.
#[derive(Debug)]
pub struct Dense {
    constants: Constants,
    pub weight: Param,
    pub bias: Param,
}

impl Dense {
    /// A layer with these weights, and biases of 0.
    pub fn new(kernels: &Kernels, outputs: usize, weight: &[f32]) -> Result<Self, Error> {
        Ok(Self {
            constants: vec![("INPUTS", weight.len() / outputs), ("OUTPUTS", outputs)],
            weight: Param::new(&kernels.gpu, "dense weight", weight)?,
            bias: Param::new(&kernels.gpu, "dense bias", &vec![0.0; outputs])?,
        })
    }

    pub fn forward(&self, kernels: &Kernels, src: &Buffer, dst: &Buffer) -> Command {
        let buffers = [src, &self.weight.value, &self.bias.value, dst];
        let (constants, extent) = (self.constants.clone(), Extent::Elements(dst));
        kernels.bind(kernel!("dense"), constants, &buffers, extent)
    }

    pub fn src_gradient(&self, kernels: &Kernels, diff_dst: &Buffer, diff_src: &Buffer) -> Command {
        let buffers = [diff_dst, &self.weight.value, diff_src];
        let (constants, extent) = (self.constants.clone(), Extent::Elements(diff_src));
        kernels.bind(kernel!("dense_src"), constants, &buffers, extent)
    }

    /// The gradients of weight and bias.
    pub fn weight_gradient(&self, kernels: &Kernels, src: &Buffer, diff_dst: &Buffer) -> Command {
        let diff_weight = &self.weight.gradient;
        let buffers = [src, diff_dst, diff_weight, &self.bias.gradient];
        let (constants, extent) = (self.constants.clone(), Extent::Elements(diff_weight));
        kernels.bind(kernel!("dense_weight"), constants, &buffers, extent)
    }
}

/// Softmax and cross entropy: the loss of each image, and the mean loss's gradient.
pub fn cross_entropy(
    kernels: &Kernels,
    logits: &Buffer,
    labels: &Buffer,
    loss: &Buffer,
    diff_logits: &Buffer,
) -> Command {
    let buffers = [logits, labels, loss, diff_logits];
    let extent = Extent::Elements(loss);
    kernels.bind(kernel!("cross_entropy"), vec![], &buffers, extent)
}
