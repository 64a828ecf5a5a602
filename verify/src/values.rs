//! The contents of a case's tensors.

use crate::expected::Expected;
use crate::numbers::{Numbers, Random, patterns, roundings};
use crate::reference::{self, Computed, SUM_ULPS};
use wgpu_norm::{
    Activation, Channels, DType, Epilogue, Error, Format, Norm, Operation, Pass, Residual,
    RunningVariance, Tensor, TensorUse,
};

/// A choice of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Values {
    /// Random numbers of ordinary size.
    #[default]
    Random,
    /// Equal diff_dst, or equal src in a forward pass: the roundings of its sums all have one sign.
    Equal,
    /// In a forward pass, src that alternates between two values: the roundings of sums of squares all have one sign.
    Alternating,
    /// Every element of a tensor equals its first one: here a tensor of any size takes no memory.
    Alike,
    /// src that hardly varies.
    TinyVariance,
    /// src that hardly varies beside its mean: some ten thousand deviations.
    LargeMean,
    /// The same, with a million deviations.
    HugeMean,
    /// src whose variance is beyond the range of f16.
    Wide,
    /// src whose squares are beyond the range of f32.
    Vast,
    /// Results beyond the range of f16.
    Overflow,
    /// diff_dst, or src in a forward pass, has every number of its 16-bit type, and with constant statistics so has the
    /// result.
    Patterns,
    /// With constant statistics, gamma is rounded to the result, which has a 16-bit type.
    Roundings,
}

/// The order in which the tensors draw their random numbers: a case's ID gives the same numbers whatever the order of
/// an operation's tensors. RMS norm's come after those of an unused mean; tensors that are not listed come last.
const GRADIENT: &[Tensor] = &[
    Tensor::Src,
    Tensor::Mean,
    Tensor::MeanSquare,
    Tensor::Variance,
    Tensor::DiffDst,
    Tensor::Gamma,
    Tensor::Beta,
    Tensor::Mask,
];
const FORWARD: &[Tensor] = &[
    Tensor::Src,
    Tensor::Mean,
    Tensor::MeanSquare,
    Tensor::Variance,
    Tensor::Residual,
    Tensor::Beta,
    Tensor::RunningMean,
    Tensor::RunningVariance,
    Tensor::Gamma,
];

impl Values {
    /// The names in a case's ID.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("equal", Self::Equal),
        ("alternating", Self::Alternating),
        ("alike", Self::Alike),
        ("tiny_variance", Self::TinyVariance),
        ("large_mean", Self::LargeMean),
        ("huge_mean", Self::HugeMean),
        ("wide", Self::Wide),
        ("vast", Self::Vast),
        ("overflow", Self::Overflow),
        ("patterns", Self::Patterns),
        ("roundings", Self::Roundings),
    ];

    /// The epsilon of the operation. With a variance of 0.5 it adds up to a power of two, so that results can be exact.
    pub const fn epsilon(self) -> f64 {
        match self {
            Self::TinyVariance => 1e-12,
            Self::Patterns | Self::Roundings => 0.5,
            _ => 1e-5,
        }
    }

    /// Whether every result is the nearest number of its type.
    pub const fn exact(self) -> bool {
        matches!(self, Self::Patterns | Self::Roundings)
    }

    /// The operation that the reference computes in place of this one: with a single element if all are equal.
    pub fn computed(self, operation: &Operation) -> Operation {
        let mut operation = operation.clone();
        if self == Self::Alike {
            operation.shape.fill(1);
            match &mut operation.norm {
                Norm::Batch(Channels::Broadcast(params)) => params.fill(1),
                Norm::Group { groups, .. } => *groups = 1,
                _ => {}
            }
            // The variance is 0, even the unbiased one.
            if let Pass::Forward(forward) = &mut operation.pass
                && let Some(update) = &mut forward.running
            {
                update.variance = RunningVariance::Biased;
            }
        }
        operation
    }

    /// The numbers that an operation reads. A gradient accepts any mean and variance, so these are plausible ones for
    /// src.
    pub fn inputs(self, operation: &Operation) -> Result<Vec<Numbers>, Error> {
        let is_gradient = matches!(operation.pass, Pass::Backward(_));
        let tensors = operation.tensors()?;
        let mut random = Random::new(operation.shape.iter().product::<usize>() as u64);
        let mut inputs = Vec::new();
        let order = if is_gradient { GRADIENT } else { FORWARD };
        let place = |used: &TensorUse| order.iter().position(|&tensor| tensor == used.tensor);
        let mut read: Vec<_> = tensors.iter().filter(|used| used.access.reads()).collect();
        read.sort_by_key(|used| place(used).unwrap_or(order.len()));
        for used in read {
            let tensor = used.tensor;
            let dtype = match used.format {
                Format::Elements(dtype) => dtype,
                _ => DType::F32,
            };
            let len = used.shape.iter().product();
            if tensor == Tensor::MeanSquare {
                self.draw(Tensor::Mean, dtype, len, &mut random);
            }
            let mut values = self.draw(tensor, operation.types.data, len, &mut random);
            if tensor == Tensor::Src && !is_gradient {
                values = self.forward_src(dtype, values);
            }
            inputs.push(Numbers::new(tensor, dtype, len, values));
        }
        if is_gradient {
            self.settle(operation, &mut inputs);
        }
        Ok(inputs)
    }

    /// Numbers for `len` elements of a tensor; a single one if all are equal.
    fn draw(self, tensor: Tensor, data: DType, len: usize, random: &mut Random) -> Vec<f64> {
        if self == Self::Alike {
            return vec![alike(tensor)];
        }
        let mut around = |offset, scale| -> Vec<f64> {
            (0..len).map(|_| random.unit() * scale + offset).collect()
        };
        let cycled = |numbers: Vec<f64>| numbers.into_iter().cycle().take(len).collect();
        match (tensor, self) {
            (Tensor::Src, Self::TinyVariance) => around(2e-7, 2e-7),
            (Tensor::Src, Self::LargeMean) => around(50_000.0, 2.0),
            (Tensor::Src, Self::HugeMean) => around(4e6, 7.0),
            (Tensor::Src, Self::Wide) => around(100.0, 1000.0),
            (Tensor::Src, Self::Vast) => around(1e21, 1e16),
            (Tensor::Src, _) => around(0.5, 2.0),
            (Tensor::Mean, Self::TinyVariance) => vec![2e-7; len],
            (Tensor::Mean, Self::LargeMean) => around(50_000.0, 0.5),
            (Tensor::Mean, Self::HugeMean) => around(4e6, 2.0),
            (Tensor::Mean, Self::Wide) => around(100.0, 10.0),
            (Tensor::Mean, Self::Vast) => around(1e21, 1e15),
            (Tensor::Mean, Self::Patterns | Self::Roundings) => vec![0.0; len],
            (Tensor::Mean, _) => around(0.5, 0.25),
            (tensor, values) if tensor.takes_epsilon() => match values {
                Self::TinyVariance => around(2e-14, 1e-14),
                Self::HugeMean => around(16.0, 4.0),
                Self::Wide => around(333_000.0, 10_000.0),
                Self::Vast => around(3e31, 1e31),
                Self::Patterns | Self::Roundings => vec![0.5; len],
                _ => around(1.25, 0.5),
            },
            (Tensor::DiffDst, Self::Equal) => vec![0.1; len],
            (Tensor::DiffDst, Self::Patterns) => cycled(patterns(data)),
            (Tensor::DiffDst, Self::Roundings) => vec![1.0; len],
            (Tensor::DiffDst, _) => around(0.1, 1.0),
            (Tensor::Gamma, Self::Overflow) => vec![1e5; len],
            (Tensor::Gamma, Self::Roundings) => cycled(roundings(data)),
            (Tensor::Beta, _) => around(0.125, 1.0),
            (Tensor::RunningMean, _) => around(0.75, 0.25),
            (Tensor::RunningVariance, _) => around(1.25, 0.5),
            (Tensor::Mask, _) => {
                let bit = |_| f64::from(u8::from(random.unit() < 0.25));
                (0..len).map(bit).collect()
            }
            // gamma, gate and residual.
            _ => around(0.25, 1.0),
        }
    }

    /// The src of a forward pass that computes its own statistics, in place of the drawn one.
    fn forward_src(self, data: DType, mut src: Vec<f64>) -> Vec<f64> {
        let len = src.len();
        match self {
            Self::Equal => vec![0.1; len],
            Self::Alternating => [0.1, 0.7].into_iter().cycle().take(len).collect(),
            Self::Patterns => patterns(data).into_iter().cycle().take(len).collect(),
            Self::Roundings => vec![1.0; len],
            Self::Random => {
                if let Some(first) = src.first_mut() {
                    *first = 30.0; // sums that are shifted by the first element have to do without
                }
                src
            }
            _ => src,
        }
    }

    /// Sets a gradient's diff_dst to 0 where rounding decides whether it passes relu.
    fn settle(self, operation: &Operation, inputs: &mut [Numbers]) {
        let Epilogue {
            residual,
            activation,
            ..
        } = operation.epilogue;
        if activation != Activation::Relu || residual != Residual::None {
            return;
        }
        let mut layer = self.computed(operation);
        layer.pass = Pass::Inference;
        layer.epilogue = Epilogue::default();
        let Ok(Some(output)) = self
            .compute(&layer, inputs)
            .map(|all| all.into_iter().next())
        else {
            return;
        };
        let roundings = 2.0 * SUM_ULPS * operation.types.data.accumulator().unit_roundoff();
        let diff_dst = inputs.iter_mut().find(|n| n.tensor == Tensor::DiffDst);
        let values = diff_dst.into_iter().flat_map(|n| &mut n.values);
        for (value, (y, scale)) in values.zip(output.values.iter().zip(&output.scale)) {
            if y.abs() <= roundings * scale {
                *value = 0.0;
            }
        }
    }

    fn compute(self, operation: &Operation, inputs: &[Numbers]) -> Result<Vec<Computed>, Error> {
        let inputs = inputs.iter().map(|input| (input.tensor, &input.values[..]));
        reference::compute(operation, &inputs.collect::<Vec<_>>())
    }

    /// The results of an operation by the reference.
    pub fn expected(
        self,
        operation: &Operation,
        inputs: &[Numbers],
    ) -> Result<Vec<Expected>, Error> {
        let tensors = operation.tensors()?;
        let sums = operation.types.data.accumulator();
        let elements: usize = operation.shape.iter().product();
        let mut expected = Vec::new();
        for mut computed in self.compute(&self.computed(operation), inputs)? {
            let written =
                |used: &&TensorUse| used.tensor == computed.tensor && used.access.writes();
            let Some(used) = tensors.iter().find(written) else {
                continue;
            };
            // If all elements are equal, the single element stands for a sum of many.
            if self == Self::Alike && used.tensor.is_param() {
                let params = used.shape.iter().product::<usize>().max(1);
                let summed = elements as f64 / params as f64;
                let all = computed.values.iter_mut().chain(&mut computed.scale);
                all.for_each(|value| *value *= summed);
            }
            expected.push(Expected::new(computed, used, sums));
        }
        Ok(expected)
    }
}

/// The value of each element of a tensor if all are equal.
const fn alike(tensor: Tensor) -> f64 {
    match tensor {
        Tensor::Mean => 0.0,
        Tensor::Mask => 1.0,
        tensor if tensor.takes_epsilon() => 1.0,
        Tensor::Gamma => 0.5,
        Tensor::Residual => 0.25,
        Tensor::RunningMean => 0.75,
        Tensor::RunningVariance => 1.25,
        _ => 0.125,
    }
}
