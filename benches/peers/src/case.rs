//! What is measured: operators and shapes.

use std::fmt;
use std::str::FromStr;
use wgpu_norm::{
    Activation, Backward, Channels, DType, DataFormat, Epilogue, Error, Forward, Norm, Operation,
    Pass, Residual, Tensor, TensorUse,
};

pub const EPSILON: f64 = 1e-5;

/// A pass of a layer: over channels those of NCX, over rows the last axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    pub norm: Norm,
    pub pass: Pass,
    residual: Residual,
}

/// What an operator normalizes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    Channels,
    Rows,
    /// Some channels of one sample.
    OfSamples,
}

impl Op {
    /// Those of `wgpu-norm bench`, the gradients first. Last, the sum of src and a residual before a transformer's
    /// norm.
    pub fn all() -> Vec<Self> {
        let format = DataFormat::Ncx;
        let norms = [
            Norm::Batch(Channels::Axis(format)),
            Norm::layer(-1),
            Norm::rms(-1),
            // At most, as most networks have it.
            Norm::group(32, format),
            Norm::instance(format),
        ];
        let passes = [
            Backward::default().into(),
            Forward::default().into(),
            Pass::Inference,
        ];
        let each = passes.iter().flat_map(|&pass| {
            let norms = norms.iter().cloned();
            norms.map(move |norm| Self {
                norm,
                pass,
                residual: Residual::None,
            })
        });
        // No peer has another layer by given statistics.
        let each =
            each.filter(|op| op.pass != Pass::Inference || matches!(op.norm, Norm::Batch(_)));
        let mut all: Vec<Self> = each.collect();
        for norm in norms.iter().filter(|norm| norm.begin_norm_axis().is_some()) {
            all.push(Self {
                norm: norm.clone(),
                pass: Forward::default().into(),
                residual: Residual::Before,
            });
        }
        all
    }

    fn operation(&self, shape: &[usize]) -> Operation {
        let channels = shape.get(1).copied().unwrap_or(1);
        let norm = match self.norm {
            Norm::Group { groups, format, .. } => {
                let mut groups = (1..=channels.min(groups)).rev();
                let groups = groups.find(|&groups| channels.is_multiple_of(groups));
                Norm::group(groups.unwrap_or(1), format)
            }
            _ => self.norm.clone(),
        };
        Operation::new(norm, self.pass, shape, DType::F32)
            .with_epsilon(EPSILON)
            .with_epilogue(Epilogue::new(self.residual, Activation::None))
    }

    #[cfg(any(feature = "meganeura", feature = "rumus"))]
    pub fn has_residual(&self) -> bool {
        self.residual != Residual::None
    }

    /// onednn.cpp and pytorch.py have the same.
    fn shapes(&self) -> &'static [&'static [usize]] {
        match groups(&self.norm) {
            Groups::Channels => &[
                &[32, 64, 56, 56],
                &[32, 256, 14, 14],
                &[4, 64, 112, 112],
                &[8, 512, 28, 28],
                &[16, 1024, 14, 14],
                &[2, 3, 512, 512],
                &[4096, 256],
                &[4, 32, 64, 64, 64],
            ],
            Groups::Rows => &[&[4096, 768], &[512, 4096], &[65536, 64]],
            Groups::OfSamples => &[
                &[8, 256, 64, 64],
                &[32, 64, 56, 56],
                &[2, 320, 64, 64],
                &[8, 1280, 16, 16],
            ],
        }
    }
}

/// The name on the command line: a gradient's is the layer's alone.
fn name(norm: &Norm, pass: &Pass, residual: Residual) -> String {
    let name = match pass {
        Pass::Backward(_) => norm.name().to_owned(),
        _ => format!("{}_{}", norm.name(), pass.name()),
    };
    match residual {
        Residual::None => name,
        _ => format!("add_{name}"),
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || {
            Self::all()
                .into_iter()
                .map(|op| (name(&op.norm, &op.pass, op.residual), op))
        };
        let found = names().find(|(name, _)| name == text);
        found.map(|(_, op)| op).ok_or_else(|| {
            let names: Vec<_> = names().map(|(name, _)| name).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

/// Sizes of a tensor's axes, written with an x between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |part: &str| match part.parse() {
            Ok(0) | Err(_) => Err(format!("'{part}' is not the size of an axis")),
            Ok(size) => Ok(size),
        };
        let sizes: Vec<usize> = text.split('x').map(size).collect::<Result<_, _>>()?;
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
#[derive(Clone, Debug)]
pub struct Case {
    pub operation: Operation,
    pub tensors: Vec<TensorUse>,
    pub groups: Groups,
    /// The tensor seen as (outer, channels, inner); where rows are normalized it is (rows, columns, 1).
    pub grid: [usize; 3],
    /// How many channels, rows or groups are normalized.
    pub group_count: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op(), self.shape())
    }
}

/// Each operator, or gradient where none is named, with each shape, or its default ones.
pub fn cases(ops: &[Op], shapes: &[Shape]) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    let gradients = Op::all().into_iter();
    let gradients = gradients.filter(|op| matches!(op.pass, Pass::Backward(_)));
    let ops = match ops {
        [] => gradients.collect(),
        given => given.to_vec(),
    };
    for op in ops {
        let shapes: Vec<Shape> = match shapes {
            [] => op.shapes().iter().map(|s| Shape(s.to_vec())).collect(),
            given => given.to_vec(),
        };
        let operations = shapes.iter().map(|Shape(shape)| op.operation(shape));
        let each = operations.map(Case::new).collect::<Result<Vec<_>, _>>()?;
        cases.extend(each);
    }
    Ok(cases)
}

fn groups(norm: &Norm) -> Groups {
    // Of a rank that has every kind of axis.
    let axes = Operation::new(norm.clone(), Forward::default(), &[2, 2, 2], DType::F32).axes();
    let over_planes = axes.iter().any(|axis| axis.reduced && !axis.parameter);
    match axes.first() {
        Some(samples) if samples.reduced => Groups::Channels,
        _ if over_planes => Groups::OfSamples,
        _ => Groups::Rows,
    }
}

impl Case {
    fn new(operation: Operation) -> Result<Self, Error> {
        let axes = operation.axes();
        let mut grid = [1; 3];
        let mut place = 0;
        for axis in &axes {
            place = match (axis.parameter, place) {
                (true, _) => 1,
                (false, 0) => 0,
                (false, _) => 2,
            };
            grid[place] *= axis.size;
        }
        let kept = axes.iter().filter(|axis| !axis.reduced);
        Ok(Self {
            grid,
            group_count: kept.map(|axis| axis.size).product(),
            groups: groups(&operation.norm),
            tensors: operation.tensors()?,
            operation,
        })
    }

    /// The operator's name.
    pub fn op(&self) -> String {
        let operation = &self.operation;
        name(
            &operation.norm,
            &operation.pass,
            operation.epilogue.residual,
        )
    }

    pub fn shape(&self) -> Shape {
        Shape(self.operation.shape.clone())
    }

    pub fn is_gradient(&self) -> bool {
        matches!(self.operation.pass, Pass::Backward(_))
    }

    /// Whether a residual is added to src.
    pub fn has_residual(&self) -> bool {
        self.operation.epilogue.residual != Residual::None
    }

    /// Whether it subtracts a mean, and has beta: RMS norm does not.
    pub fn centers(&self) -> bool {
        self.operation.norm.statistics().contains(&Tensor::Mean)
    }

    /// What it writes.
    pub fn outputs(&self) -> impl Iterator<Item = &TensorUse> {
        self.tensors.iter().filter(|used| used.access.writes())
    }

    pub fn elements(&self) -> usize {
        self.operation.shape.iter().product()
    }

    /// Groups of a sample's channels.
    #[cfg(any(feature = "burn", feature = "meganeura", feature = "numr"))]
    pub fn channel_groups(&self) -> usize {
        let [samples, _, _] = self.grid;
        self.group_count / samples
    }

    /// The channel or (layer and RMS norm) column of an element, whose gamma and beta it has.
    pub fn channel(&self, i: usize) -> usize {
        let [_, channels, inner] = self.grid;
        i / inner % channels
    }

    /// The channel, row or group that an element is normalized with.
    pub fn group(&self, i: usize) -> usize {
        match self.groups {
            Groups::Channels => self.channel(i),
            // Elements of a row or of a group lie side by side.
            Groups::Rows | Groups::OfSamples => i / (self.elements() / self.group_count),
        }
    }

    /// How many sets of buffers take turns, so that small tensors do not stay in a cache.
    pub fn sets(&self) -> usize {
        const TOTAL: usize = 256 << 20;
        let large = self.tensors.iter().filter(|used| used.tensor.is_data());
        (TOTAL / (large.count() * 4 * self.elements())).clamp(1, 8)
    }
}
