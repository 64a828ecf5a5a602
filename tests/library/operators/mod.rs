//! The operators under the documents' own names: the operations that they are, the float64 reference's numbers, the
//! numbers printed by the tests of other implementations, small cases by hand, and errors.

mod directml;
mod ngraph;
mod onednn;
mod onnx;
mod pytorch;

use crate::common::data::{Problem, Values, error, find};
use crate::common::errors::says;
use crate::common::{Subject, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::operators::{
    self, Inputs, Operator as AnyOperator, Outputs, directml as directml_ops, ngraph as ngraph_ops,
    onednn as onednn_ops, onnx as onnx_ops, pytorch as pytorch_ops,
};
use wgpu_norm::{
    Backward, Channels, DType, DTypes, DataFormat, Error, Format, Forward, GpuContext, Norm,
    Operation, Pass, RunningUpdate, RunningVariance, Tensor, Through, bytemuck,
};
use wgpu_norm_verify::reference::scaled_error;

/// An operator's calls.
trait Operator {
    fn operation(&self, inputs: &Inputs<'_>) -> Result<Operation, Error>;

    fn run(&self, gpu: &GpuContext, inputs: &Inputs<'_>) -> Result<Outputs, Error>;
}

macro_rules! operators {
    ($($Operator:path),* $(,)?) => {
        $(impl Operator for $Operator {
            fn operation(&self, inputs: &Inputs<'_>) -> Result<Operation, Error> {
                self.operation(inputs)
            }

            fn run(&self, gpu: &GpuContext, inputs: &Inputs<'_>) -> Result<Outputs, Error> {
                fn sent<T>(future: impl Future<Output = T> + Send) -> T {
                    block_on(future)
                }
                sent(self.run(gpu, inputs))
            }
        })*
    };
}

operators!(
    directml_ops::BatchNormalization,
    directml_ops::BatchNormalizationGrad,
    directml_ops::BatchNormalizationTraining,
    directml_ops::BatchNormalizationTrainingGrad,
    directml_ops::MeanVarianceNormalization1,
    directml_ops::MeanVarianceNormalization2,
    ngraph_ops::BatchNormInference,
    ngraph_ops::BatchNormTraining,
    ngraph_ops::BatchNormTrainingBackprop,
    onednn_ops::BatchNormForwardTraining,
    onednn_ops::BatchNormInference,
    onednn_ops::BatchNormTrainingBackward,
    onednn_ops::BatchNormalization,
    onednn_ops::BatchNormalizationBackward,
    onednn_ops::GroupNormalization,
    onednn_ops::GroupNormalizationBackward,
    onednn_ops::LayerNorm,
    onednn_ops::LayerNormBackward,
    onnx_ops::BatchNormalization,
    onnx_ops::GroupNormalization,
    onnx_ops::InstanceNormalization,
    onnx_ops::LayerNormalization,
    onnx_ops::MeanVarianceNormalization,
    onnx_ops::RmsNormalization,
    pytorch_ops::NativeBatchNorm,
    pytorch_ops::NativeBatchNormBackward,
    pytorch_ops::NativeGroupNorm,
    pytorch_ops::NativeGroupNormBackward,
    pytorch_ops::NativeLayerNorm,
    pytorch_ops::NativeLayerNormBackward,
    pytorch_ops::RmsNorm,
);

/// The same in f32 and f64.
const EPSILON: f32 = 1.0 / 1024.0;

/// The types of data and of parameters.
const PAIRS: [(DType, DType); 6] = [
    (DType::F32, DType::F32),
    (DType::F16, DType::F32),
    (DType::F16, DType::F16),
    (DType::Bf16, DType::F32),
    (DType::Bf16, DType::Bf16),
    (DType::F64, DType::F64),
];

/// All pairs of types, with statistics in the type of the parameters.
fn of_params() -> impl Iterator<Item = DTypes> {
    PAIRS
        .into_iter()
        .map(|(data, params)| DTypes::from((data, params)).with_statistics(params))
}

/// All pairs of types, with statistics in the type of sums.
fn of_sums() -> impl Iterator<Item = DTypes> {
    PAIRS.into_iter().map(DTypes::from)
}

/// The adapters that take data of a type.
fn taking(data: DType) -> impl Iterator<Item = &'static Subject> {
    subjects().iter().filter(move |subject| match data {
        DType::F16 => subject.takes::<f16>(),
        DType::Bf16 => subject.takes::<bf16>(),
        DType::F64 => subject.takes::<f64>(),
        _ => subject.takes::<f32>(),
    })
}

/// An operation made by hand, with epsilon 1/1024.
fn by_hand(norm: Norm, pass: impl Into<Pass>, shape: &[usize], types: DTypes) -> Operation {
    Operation::new(norm, pass, shape, types).with_epsilon(EPSILON.into())
}

/// The forward pass in training, with running statistics.
fn training(weight: f64, variance: RunningVariance) -> Forward {
    Forward::default().with_running(RunningUpdate::new(weight, variance))
}

/// A document's names of an operation's tensors. Names of tensors that the operation does not have are of those that no
/// result depends on.
type Names<'n> = &'n [(&'n str, Tensor)];

/// The names whose tensors hold 1/√(variance + epsilon).
const INVERSE: [&str; 3] = ["rstd", "save_invstd", "InvStdDev"];

/// A problem, and the inputs of an operator that are not the operation's.
struct Given {
    problem: Problem,
    /// 1/√(variance + epsilon).
    inverse: Vec<u8>,
    /// A beta that no result depends on.
    beta: Option<Values>,
}

impl From<Problem> for Given {
    fn from(problem: Problem) -> Self {
        let mut forward = problem.operation.clone();
        forward.pass = Forward::default().into();
        let has_beta = !matches!(forward.norm, Norm::Rms { .. });
        let mut tensors = forward
            .with_params(true, has_beta)
            .tensors()
            .unwrap()
            .into_iter();
        let beta = tensors.find(|used| used.tensor == Tensor::Beta);
        let beta =
            beta.map(|used| Values::new(used.clone(), &vec![f64::NAN; used.elements() as usize]));
        Self {
            problem,
            inverse: Vec::new(),
            beta,
        }
    }
}

impl Given {
    /// Random tensors. With inverse deviations, the variance is the one that follows from them.
    fn random(by_hand: &Operation, has_inverse: bool) -> Self {
        let mut problem = Problem::random(by_hand, 1);
        let mut inverse = Vec::new();
        if has_inverse {
            let variance = find(&problem.inputs, Tensor::Variance);
            let Format::Elements(dtype) = variance.used.format else {
                panic!("{variance:?}");
            };
            let (variances, epsilon) = (variance.numbers().into_iter(), by_hand.epsilon);
            inverse = dtype.encode(variances.map(|v| 1.0 / (v + epsilon).sqrt()));
            let variances = dtype.values(&inverse).map(|r| 1.0 / (r * r) - epsilon);
            problem.set(Tensor::Variance, &variances.collect::<Vec<_>>());
        }
        Self {
            inverse,
            ..problem.into()
        }
    }

    /// The inputs by the document's names; parameters and statistics have this shape, if it is not the operation's.
    fn named<'p>(&'p self, parameter_shape: Option<&'p [usize]>, names: Names<'p>) -> Inputs<'p> {
        let mut inputs = Inputs::new();
        for (name, tensor) in names {
            let Values { used, bytes } = match &self.beta {
                Some(beta) if *tensor == Tensor::Beta && !self.problem.has(*tensor) => beta,
                _ => find(&self.problem.inputs, *tensor),
            };
            let is_broadcast = tensor.is_param() || tensor.is_statistic();
            let shape = parameter_shape
                .filter(|_| is_broadcast)
                .unwrap_or(&used.shape);
            let is_inverse = INVERSE.contains(name);
            let bytes = if is_inverse { &self.inverse } else { bytes };
            inputs = match used.format {
                Format::Elements(dtype) => inputs.with_bytes(name, shape, dtype, bytes),
                _ => inputs.with_mask(name, shape, bytemuck::cast_slice(bytes)),
            };
        }
        inputs
    }
}

/// An operator's outputs as an operation's results.
fn values(problem: &Problem, outputs: &Outputs, names: Names<'_>) -> Vec<Values> {
    let returned: Vec<_> = outputs.iter().map(|output| output.name).collect();
    let expected: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    assert_eq!(returned, expected);
    let tensors = problem.operation.tensors().unwrap();
    let values = names.iter().map(|(name, tensor)| {
        let used = tensors.iter().find(|used| used.tensor == *tensor).unwrap();
        let output = outputs.output(name).unwrap();
        let ones = output.shape.get(used.shape.len()..).unwrap_or_default();
        let is_shorter = used.shape.starts_with(&output.shape); // (N) of (N, 1)
        let keeps_rank =
            output.shape.starts_with(&used.shape) && ones.iter().all(|size| *size == 1);
        assert!(is_shorter || keeps_rank);
        assert_eq!(output.format, used.format);
        let mut bytes = output.bytes().to_vec();
        if let (true, Format::Elements(dtype)) = (INVERSE.contains(name), used.format) {
            let epsilon = problem.operation.epsilon;
            bytes = dtype.encode(dtype.values(&bytes).map(|r| 1.0 / (r * r) - epsilon));
        }
        let used = used.clone();
        Values { used, bytes }
    });
    values.collect()
}

/// Checks that an operator is an operation made by hand; that its numbers are the reference's, and the bits those of
/// the operation.
fn check(op: &impl Operator, by_hand: &Operation, inputs: Names<'_>, outputs: Names<'_>) {
    check_broadcast(op, by_hand, None, inputs, outputs);
}

/// Likewise, with parameters of this shape.
fn check_broadcast(
    op: &impl Operator,
    by_hand: &Operation,
    parameter_shape: Option<&[usize]>,
    inputs: Names<'_>,
    outputs: Names<'_>,
) {
    let has_inverse = inputs.iter().any(|(name, _)| INVERSE.contains(name));
    let given = Given::random(by_hand, has_inverse);
    let problem = &given.problem;
    let inputs = given.named(parameter_shape, inputs);
    assert_eq!(&op.operation(&inputs).unwrap(), by_hand);
    let want = problem.reference();
    for subject in taking(by_hand.types.data) {
        let what = format!("{by_hand} on {}", subject.name);
        let returned = op
            .run(&subject.gpu, &inputs)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let engine = problem.run(subject).unwrap();
        for (got, (name, tensor)) in values(problem, &returned, outputs).iter().zip(outputs) {
            let want = want.iter().find(|want| want.tensor == *tensor).unwrap();
            if INVERSE.contains(name) {
                // The inverse deviation has half the relative error of the variance, and a rounding.
                let sums = want
                    .values
                    .iter()
                    .map(|variance| 2.0 * (variance + by_hand.epsilon));
                let scale: Vec<_> = sums
                    .zip(&want.scale)
                    .map(|(sum, scale)| sum + scale)
                    .collect();
                let got = got
                    .numbers()
                    .into_iter()
                    .map(|v| v as f32)
                    .collect::<Vec<_>>();
                let error = scaled_error(&got, &want.values, &scale);
                assert!(error <= 1.0, "{what}: {name} is off by {error} tolerances");
            } else {
                let error = error(got, want);
                assert!(error <= 1.0, "{what}: {name} is off by {error} tolerances");
                assert_eq!(got.bytes, find(&engine, *tensor).bytes, "{what}: {name}");
            }
        }
    }
}

/// Asserts that outputs are numbers that were worked out by hand or printed by others, within a relative and an
/// absolute distance.
#[track_caller]
fn assert_near(outputs: &Outputs, name: &str, want: &[f32], relative: f32, absolute: f32) {
    let got = outputs.get::<f32>(name).unwrap();
    assert_eq!(got.len(), want.len(), "{name}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= absolute + relative * want.abs();
        assert!(near, "{name}: {got} at {index}, not {want}");
    }
}

/// Numbers by hand.
#[track_caller]
fn near(outputs: &Outputs, name: &str, want: &[f32]) {
    assert_near(outputs, name, want, 1e-5, 1e-5);
}

/// Asserts the message of an error.
#[track_caller]
fn fails<V: std::fmt::Debug>(result: Result<V, Error>, message: &str) {
    assert_eq!(result.unwrap_err().to_string(), message);
}

/// Inputs in which one is replaced, or added.
fn replaced<'a>(
    inputs: &[(&'a str, &'a [usize], &'a [f32])],
    other: (&'a str, &'a [usize], &'a [f32]),
) -> Inputs<'a> {
    let kept = inputs.iter().filter(|(name, ..)| *name != other.0);
    let all = kept.chain(std::iter::once(&other));
    all.fold(Inputs::new(), |inputs, (name, shape, values)| {
        inputs.with(name, shape, values)
    })
}

/// Inputs without one of them.
fn without<'a>(inputs: &[(&'a str, &'a [usize], &'a [f32])], name: &str) -> Inputs<'a> {
    let kept = inputs.iter().filter(|(own, ..)| *own != name);
    kept.fold(Inputs::new(), |inputs, (name, shape, values)| {
        inputs.with(name, shape, values)
    })
}

/// Every operator, with epsilon 0, which DirectML's document allows; none here does. The backward operators of
/// PyTorch's rows and groups have the forward pass's.
#[test]
fn epsilon_zero_is_refused_by_every_operator() {
    let all: [&dyn AnyOperator; 31] = [
        &directml_ops::BatchNormalization::new(0.0),
        &directml_ops::BatchNormalizationGrad::new(0.0),
        &directml_ops::BatchNormalizationTraining::new(0.0),
        &directml_ops::BatchNormalizationTrainingGrad::new(0.0),
        &directml_ops::MeanVarianceNormalization1::new(vec![1], 0.0),
        &directml_ops::MeanVarianceNormalization2::new(vec![1], 0.0),
        &ngraph_ops::BatchNormInference::new(0.0),
        &ngraph_ops::BatchNormTraining::new(0.0),
        &ngraph_ops::BatchNormTrainingBackprop::new(0.0),
        &onednn_ops::BatchNormForwardTraining::new(0.0),
        &onednn_ops::BatchNormInference::new(0.0),
        &onednn_ops::BatchNormTrainingBackward::new(0.0),
        &onednn_ops::BatchNormalization::new(0.0),
        &onednn_ops::BatchNormalizationBackward::new(0.0),
        &onednn_ops::GroupNormalization::new(3, 0.0),
        &onednn_ops::GroupNormalizationBackward::new(3, 0.0),
        &onednn_ops::LayerNorm {
            epsilon: 0.0,
            ..onednn_ops::LayerNorm::default()
        },
        &onednn_ops::LayerNormBackward {
            epsilon: 0.0,
            ..onednn_ops::LayerNormBackward::default()
        },
        &onnx_ops::BatchNormalization {
            epsilon: 0.0,
            ..onnx_ops::BatchNormalization::default()
        },
        &onnx_ops::GroupNormalization {
            epsilon: 0.0,
            num_groups: 3,
        },
        &onnx_ops::InstanceNormalization { epsilon: 0.0 },
        &onnx_ops::LayerNormalization {
            epsilon: 0.0,
            axis: -1,
        },
        &onnx_ops::MeanVarianceNormalization {
            epsilon: 0.0,
            axes: vec![0],
        },
        &onnx_ops::RmsNormalization {
            epsilon: 0.0,
            axis: -1,
        },
        &pytorch_ops::NativeBatchNorm {
            eps: 0.0,
            ..pytorch_ops::NativeBatchNorm::default()
        },
        &pytorch_ops::NativeBatchNormBackward {
            eps: 0.0,
            ..pytorch_ops::NativeBatchNormBackward::default()
        },
        &pytorch_ops::NativeGroupNorm { eps: 0.0, group: 3 },
        &pytorch_ops::NativeGroupNormBackward {
            eps: Some(0.0),
            ..pytorch_ops::NativeGroupNormBackward::new(3)
        },
        &pytorch_ops::NativeLayerNorm {
            eps: 0.0,
            normalized_shape: vec![3],
        },
        &pytorch_ops::NativeLayerNormBackward {
            eps: Some(0.0),
            ..pytorch_ops::NativeLayerNormBackward::new(vec![3])
        },
        &pytorch_ops::RmsNorm::new(vec![3], 0.0),
    ];
    for operator in all {
        let mut names = operator.inputs();
        let error = loop {
            let described = names.iter().fold(Inputs::new(), |inputs, (name, tensor)| {
                let is_data = tensor.is_some_and(Tensor::is_data);
                let shape: &[usize] = if is_data { &[2, 3] } else { &[1, 3] };
                inputs.described(name, shape, DType::F32)
            });
            match operators::operation(operator, &described).unwrap_err() {
                Error::Argument {
                    argument, expected, ..
                } if expected.starts_with("none, as") => {
                    names.retain(|(name, _)| *name != argument);
                }
                error => break error,
            }
        };
        assert!(matches!(error, Error::Epsilon { got: 0.0, .. }), "{error}");
        assert!(!operator.outputs().is_empty());
    }
}

/// What every operator says about its inputs.
#[test]
fn inputs_are_checked() {
    let gpu = &subjects()[0].gpu;
    let op = ngraph_ops::BatchNormTraining::new(1e-5);
    let all = [
        ("input", &[2, 3][..], &[1.0; 6][..]),
        ("gamma", &[3], &[1.0; 3]),
        ("beta", &[3], &[1.0; 3]),
    ];
    let run = |inputs: Inputs<'_>| block_on(op.run(gpu, &inputs));
    let outputs = run(replaced(&all, all[0])).unwrap();
    fails(
        run(without(&all, "input")),
        "input: expected a tensor, got none",
    );
    fails(
        run(without(&all, "gamma")),
        "gamma: expected a tensor, got none",
    );
    let unknown = replaced(&all, ("scale", &[3], &[1.0; 3]));
    fails(
        run(unknown),
        "name of an input: expected one of input, gamma, beta, got scale",
    );
    let twice = replaced(&all, all[0]).with("beta", &[3], &[1.0_f32; 3]);
    fails(run(twice), "beta: expected one tensor, got two");
    let short = replaced(&all, ("beta", &[3], &[1.0; 2]));
    fails(run(short), "beta: expected 3 elements, got 2");
    let square = [
        ("input", &[1, 4][..], &[1.0; 4][..]),
        ("gamma", &[4, 1], &[1.0; 4]),
        ("beta", &[2, 2], &[1.0; 4]),
    ];
    fails(
        run(without(&square, "")),
        "beta: expected shape [4], got [2, 2]",
    );
    let square = without(&square, "");
    fails(
        op.operation(&square),
        "beta: expected shape [4], got [2, 2]",
    );
    let other = replaced(&all, ("beta", &[2], &[1.0; 2]));
    assert!(op.operation(&other).is_err());
    says(
        &run(other).unwrap_err(),
        &["beta: expected 3 elements (axis 1 of [2, 3] in Ncx), got 2"],
    );
    let half = without(&all, "beta").with("beta", &[3], &[f16::ONE; 3]);
    fails(run(half), "beta: expected f32 elements, got f16 elements");
    let odd = without(&all, "beta").with_bytes("beta", &[3], DType::F32, &[0; 11]);
    fails(
        run(odd),
        "beta: expected 3 elements of 4 bytes, got 11 bytes",
    );
    let described = without(&all, "beta").described("beta", &[3], DType::F32);
    fails(
        run(described),
        "beta: expected elements in host memory, got none",
    );
    let mask = without(&all, "input").with_mask("input", &[2, 3], &[0]);
    fails(run(mask), "input: expected numbers, got a mask's words");
    let huge = without(&all, "input").described("input", &[usize::MAX, 3], DType::F32);
    assert!(matches!(
        op.operation(&huge),
        Err(Error::SizeOverflow { what: "input", .. })
    ));

    fails(
        outputs.get::<f32>("dst"),
        "name of an output: expected one of normalized, batch_mean, batch_variance, got dst",
    );
    fails(
        outputs.get::<f16>("batch_mean"),
        "type of an output: expected f32 elements, as batch_mean has, got f16 elements",
    );
    fails(
        outputs.mask("batch_mean"),
        "type of an output: expected f32 elements, as batch_mean has, got a mask's words",
    );
    assert!(outputs.output("dst").is_none());
    let shapes = outputs.iter().map(|output| &*output.shape);
    assert!(shapes.eq([&[2, 3][..], &[3], &[3]]));
}
