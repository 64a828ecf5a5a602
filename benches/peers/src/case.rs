//! What is measured: operators, shapes, and the tensors made up for them.

use crate::Result;
use crate::measure::Gradients;
use std::fmt;
use std::str::FromStr;

pub const EPSILON: f64 = 1e-5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Op {
    /// Batch norm over NCX: the second axis is the channel's.
    #[value(name = "batch_norm")]
    BatchNorm,
    /// Layer norm over the last axis.
    #[value(name = "layer_norm")]
    LayerNorm,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Self::BatchNorm => "batch_norm",
            Self::LayerNorm => "layer_norm",
        }
    }
}

/// Sizes of a tensor's axes, written with an x between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let size = |part: &str| match part.parse() {
            Ok(0) | Err(_) => Err(format!("'{part}' is not the size of an axis")),
            Ok(size) => Ok(size),
        };
        let sizes: Vec<usize> = text
            .split('x')
            .map(size)
            .collect::<std::result::Result<_, _>>()?;
        match sizes.len() {
            2..=5 => Ok(Self(sizes)),
            rank => Err(format!("rank {rank}; 2 to 5 are supported")),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&sizes.join("x"))
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub op: Op,
    pub shape: Shape,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op.name(), self.shape)
    }
}

/// onednn.cpp and pytorch.py have the same list.
fn defaults() -> Vec<Case> {
    let case = |op, sizes: &[usize]| Case {
        op,
        shape: Shape(sizes.to_vec()),
    };
    vec![
        case(Op::BatchNorm, &[32, 64, 56, 56]),
        case(Op::BatchNorm, &[32, 256, 14, 14]),
        case(Op::BatchNorm, &[4, 64, 112, 112]),
        case(Op::BatchNorm, &[8, 512, 28, 28]),
        case(Op::BatchNorm, &[16, 1024, 14, 14]),
        case(Op::BatchNorm, &[2, 3, 512, 512]),
        case(Op::BatchNorm, &[4096, 256]),
        case(Op::BatchNorm, &[4, 32, 64, 64, 64]),
        case(Op::LayerNorm, &[4096, 768]),
        case(Op::LayerNorm, &[512, 4096]),
        case(Op::LayerNorm, &[65536, 64]),
    ]
}

/// The default list, narrowed; shapes that are not in it are added where the operator is named.
pub fn select(op: Option<Op>, shapes: &[Shape]) -> Result<Vec<Case>> {
    let listed: Vec<Case> = defaults()
        .into_iter()
        .filter(|case| op.is_none_or(|op| case.op == op))
        .collect();
    if shapes.is_empty() {
        return Ok(listed);
    }
    let mut cases = Vec::new();
    for shape in shapes {
        match (listed.iter().find(|case| case.shape == *shape), op) {
            (Some(case), _) => cases.push(case.clone()),
            (None, Some(op)) => cases.push(Case {
                op,
                shape: shape.clone(),
            }),
            (None, None) => {
                return Err(format!("{shape} is not in the default list: add --op").into());
            }
        }
    }
    Ok(cases)
}

/// A layer's tensors in host memory.
pub struct Tensors {
    pub src: Vec<f32>,
    pub diff_dst: Vec<f32>,
    /// Of each channel (batch norm) or row (layer norm), as are the variances.
    pub mean: Vec<f32>,
    pub variance: Vec<f32>,
    /// Of each channel (batch norm) or column (layer norm).
    pub gamma: Vec<f32>,
}

impl Case {
    pub fn elements(&self) -> usize {
        self.shape.0.iter().product()
    }

    /// The tensor seen as (outer, channels, inner); a layer norm's is (rows, columns, 1).
    pub fn grid(&self) -> [usize; 3] {
        let sizes = &self.shape.0;
        match self.op {
            Op::BatchNorm => [sizes[0], sizes[1], sizes[2..].iter().product()],
            Op::LayerNorm => {
                let columns = sizes.last().copied().unwrap_or(1);
                [self.elements() / columns, columns, 1]
            }
        }
    }

    /// Numbers that look random and are the same everywhere, and the true statistics of `src`.
    pub fn tensors(&self) -> Tensors {
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0 // in [-1, 1)
        };
        let [_, channels, _] = self.grid();
        let src: Vec<f32> = (0..self.elements()).map(|_| random() + 0.5).collect();
        let diff_dst = (0..self.elements()).map(|_| random()).collect();
        let gamma = (0..channels).map(|_| 1.0 + 0.5 * random()).collect();
        // Two passes in f64: statistics must not be anybody's weak point.
        let mean = self.averages(|i, _| f64::from(src[i]));
        let variance = self.averages(|i, group| (f64::from(src[i]) - mean[group]).powi(2));
        Tensors {
            mean: narrow(&mean),
            variance: narrow(&variance),
            diff_dst,
            gamma,
            src,
        }
    }

    /// The gradients by their definition, in f64 until they are done.
    pub fn reference(&self, tensors: &Tensors) -> Gradients {
        let [_, channels, inner] = self.grid();
        let channel = |i: usize| i / inner % channels;
        let scale: Vec<f64> = tensors
            .variance
            .iter()
            .map(|&x| (f64::from(x) + EPSILON).sqrt().recip())
            .collect();
        let diff_dst = |i: usize| f64::from(tensors.diff_dst[i]);
        let normalized = |i: usize, group: usize| {
            (f64::from(tensors.src[i]) - f64::from(tensors.mean[group])) * scale[group]
        };
        let scaled = |i: usize| diff_dst(i) * f64::from(tensors.gamma[channel(i)]);
        let offset = self.averages(|i, _| scaled(i));
        let slope = self.averages(|i, group| scaled(i) * normalized(i, group));
        let mut diff_gamma = vec![0.0; channels];
        let mut diff_beta = vec![0.0; channels];
        let mut diff_src = Vec::with_capacity(self.elements());
        for i in 0..self.elements() {
            let group = self.group(i);
            let normalized = normalized(i, group);
            diff_gamma[channel(i)] += diff_dst(i) * normalized;
            diff_beta[channel(i)] += diff_dst(i);
            let difference = scaled(i) - offset[group] - normalized * slope[group];
            diff_src.push((scale[group] * difference) as f32);
        }
        Gradients {
            diff_src,
            diff_gamma: narrow(&diff_gamma),
            diff_beta: narrow(&diff_beta),
        }
    }

    /// The channel (batch norm) or row (layer norm) that an element is normalized with.
    fn group(&self, i: usize) -> usize {
        let [_, channels, inner] = self.grid();
        match self.op {
            Op::BatchNorm => i / inner % channels,
            Op::LayerNorm => i / channels,
        }
    }

    /// The average over each group of a value of every element, given its index and group.
    fn averages(&self, value: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let [outer, channels, _] = self.grid();
        let groups = match self.op {
            Op::BatchNorm => channels,
            Op::LayerNorm => outer,
        };
        let mut sums = vec![0.0; groups];
        for i in 0..self.elements() {
            let group = self.group(i);
            sums[group] += value(i, group);
        }
        let count = (self.elements() / groups) as f64;
        sums.iter().map(|sum| sum / count).collect()
    }

    /// How many sets of buffers take turns, so that small tensors do not stay in a cache.
    pub fn sets(&self) -> usize {
        const TOTAL: usize = 256 << 20;
        (TOTAL / (3 * 4 * self.elements())).clamp(1, 8)
    }
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}
