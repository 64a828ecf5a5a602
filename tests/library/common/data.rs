//! Operations with seeded data, and the comparison with the reference.

pub use wgpu_norm_verify::Random;

use super::Subject;
use pollster::block_on;
use wgpu_norm::half::{bf16, f16};
use wgpu_norm::{
    DType, DataFormat, Element, Error, Format, Forward, Norm, Operation, Pass, Tensor, TensorUse,
    Through, Tuning, bytemuck,
};
use wgpu_norm_verify::reference::{Computed, SUM_ULPS, compute, scaled_error};

pub fn to_f64<T: Element>(values: &[T]) -> Vec<f64> {
    values.iter().map(|v| v.to_f64()).collect()
}

/// A tensor of an operation, and its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    pub used: TensorUse,
    pub bytes: Vec<u8>,
}

impl Values {
    /// The elements nearest to these numbers; for a mask, 0 or 1 for each.
    pub fn new(used: TensorUse, numbers: &[f64]) -> Self {
        let bytes = match used.format {
            Format::Elements(dtype) => dtype.encode(numbers.iter().copied()),
            Format::Bits => {
                let words = numbers.chunks(32).map(|bits| {
                    let bits = bits.iter().rev();
                    bits.fold(0_u32, |word, &bit| word << 1 | u32::from(bit != 0.0))
                });
                words.flat_map(u32::to_ne_bytes).collect()
            }
            other => panic!("{other:?}"),
        };
        Self { used, bytes }
    }

    /// The elements as float64; for a mask, 0 or 1 for each.
    pub fn numbers(&self) -> Vec<f64> {
        match self.used.format {
            Format::Elements(dtype) => dtype.values(&self.bytes).collect(),
            Format::Bits => {
                let words: Vec<u32> = bytemuck::pod_collect_to_vec(&self.bytes);
                let elements = 0..self.used.shape.iter().product();
                elements
                    .map(|i: usize| f64::from(words[i / 32] >> (i % 32) & 1))
                    .collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The values of a tensor.
#[track_caller]
pub fn find(all: &[Values], tensor: Tensor) -> &Values {
    let found = all.iter().find(|values| values.used.tensor == tensor);
    found.unwrap_or_else(|| panic!("no {}", tensor.name()))
}

/// An operation and its inputs.
#[derive(Clone, Debug)]
pub struct Problem {
    pub operation: Operation,
    pub inputs: Vec<Values>,
}

impl Problem {
    /// Random tensors: src in 0.5 ± 2, diff_dst in 0.1 ± 1, gamma in 0.25 ± 1, beta and residual in ± 1. Given
    /// statistics are those of src, rounded to their type; running statistics are 0.5 and 2.
    pub fn random(operation: &Operation, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut inputs: Vec<Values> = Vec::new();
        for used in operation.tensors().unwrap() {
            let len: usize = used.shape.iter().product();
            let (scale, offset) = match used.tensor {
                _ if !used.access.reads() => continue,
                Tensor::Src => (2.0, 0.5),
                Tensor::DiffDst => (1.0, 0.1),
                Tensor::Gamma => (1.0, 0.25),
                Tensor::RunningMean => (0.0, 0.5),
                Tensor::RunningVariance => (0.0, 2.0),
                _ => (1.0, 0.0),
            };
            let bytes = match used.format {
                Format::Bits => {
                    let words = (0..used.elements()).map(|_| random.bits() as u32);
                    let mut words: Vec<u32> = words.collect();
                    // The bits after the last element are 0.
                    if let Some(last) = words.last_mut()
                        && !len.is_multiple_of(32)
                    {
                        *last &= (1_u32 << (len % 32)) - 1;
                    }
                    bytemuck::cast_slice(&words).to_vec()
                }
                Format::Elements(dtype) => {
                    let values = match used.tensor {
                        Tensor::Mean | Tensor::Variance | Tensor::MeanSquare => {
                            statistic(operation, used.tensor, &inputs[0])
                        }
                        _ => random.vec(len, scale, offset),
                    };
                    dtype.encode(values)
                }
                other => panic!("{other:?}"),
            };
            inputs.push(Values { used, bytes });
        }
        Self {
            operation: operation.clone(),
            inputs,
        }
    }

    /// Whether the problem has an input for this tensor.
    pub fn has(&self, tensor: Tensor) -> bool {
        let mut inputs = self.inputs.iter();
        inputs.any(|values| values.used.tensor == tensor)
    }

    /// The elements of an input.
    pub fn elements<T: Element>(&self, tensor: Tensor) -> Vec<T> {
        bytemuck::pod_collect_to_vec(&find(&self.inputs, tensor).bytes)
    }

    /// Sets the numbers of an input.
    #[track_caller]
    pub fn set(&mut self, tensor: Tensor, numbers: &[f64]) {
        let mut inputs = self.inputs.iter_mut();
        let input = inputs.find(|values| values.used.tensor == tensor);
        let input = input.unwrap_or_else(|| panic!("no {}", tensor.name()));
        let Format::Elements(dtype) = input.used.format else {
            panic!("{} has no numbers", tensor.name());
        };
        input.bytes = dtype.encode(numbers.iter().copied());
    }

    /// Runs the problem with `Operation::run_into`. Results are NaN before, except those that are also read.
    pub fn run(&self, subject: &Subject) -> Result<Vec<Values>, Error> {
        self.run_by(|inputs, outputs| {
            let run = self.operation.run_into(&subject.gpu, inputs, outputs);
            block_on(run)
        })
    }

    /// Runs the problem with a function of the inputs' and the outputs' slices.
    pub fn run_by(
        &self,
        run: impl FnOnce(&[(Tensor, &[u8])], &mut [(Tensor, &mut [u8])]) -> Result<(), Error>,
    ) -> Result<Vec<Values>, Error> {
        let mut results = self.results();
        let inputs = self.inputs.iter();
        let inputs = inputs.filter(|values| !values.used.access.writes());
        let inputs: Vec<_> = inputs
            .map(|values| (values.used.tensor, &*values.bytes))
            .collect();
        let mut outputs: Vec<_> = results
            .iter_mut()
            .map(|values| (values.used.tensor, &mut *values.bytes))
            .collect();
        run(&inputs, &mut outputs)?;
        Ok(results)
    }

    /// The results before they are computed: NaN, or the inputs' values.
    pub fn results(&self) -> Vec<Values> {
        let tensors = self.operation.tensors().unwrap().into_iter();
        let written = tensors.filter(|used| used.access.writes());
        let values = written.map(|used| {
            let input = self.inputs.iter();
            let mut input = input.filter(|values| values.used.tensor == used.tensor);
            let bytes = match input.next() {
                Some(values) => values.bytes.clone(),
                None => vec![0xff; used.bytes() as usize],
            };
            Values { used, bytes }
        });
        values.collect()
    }

    pub fn reference(&self) -> Vec<Computed> {
        let numbers = self.inputs.iter();
        let numbers: Vec<_> = numbers
            .map(|values| (values.used.tensor, values.numbers()))
            .collect();
        let numbers: Vec<_> = numbers
            .iter()
            .map(|(tensor, numbers)| (*tensor, &**numbers))
            .collect();
        compute(&self.operation, &numbers).unwrap()
    }

    /// Runs the problem on a subject, and compares the results with the reference.
    #[track_caller]
    pub fn check(&self, subject: &Subject, what: &str) -> Vec<Values> {
        let what = format!("{what} on {}", subject.name);
        let got = self
            .run(subject)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_close(&got, &self.reference(), &what);
        got
    }
}

/// A statistic of src.
fn statistic(operation: &Operation, tensor: Tensor, src: &Values) -> Vec<f64> {
    let forward = Operation::new(
        operation.norm.clone(),
        Forward::default(),
        &operation.shape,
        operation.types,
    );
    let forward = forward.with_params(false, false);
    let computed = compute(&forward, &[(Tensor::Src, &src.numbers())]).unwrap();
    let found = computed
        .into_iter()
        .find(|computed| computed.tensor == tensor);
    found.unwrap().values
}

/// Asserts that all results are within the tolerance of the reference, and that there are no others.
#[track_caller]
pub fn assert_close(got: &[Values], want: &[Computed], what: &str) {
    let names = |tensors: &mut dyn Iterator<Item = Tensor>| {
        let mut names: Vec<_> = tensors.map(Tensor::name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        names(&mut got.iter().map(|values| values.used.tensor)),
        names(&mut want.iter().map(|computed| computed.tensor)),
        "{what}"
    );
    for want in want {
        let got = find(got, want.tensor);
        let name = want.tensor.name();
        let error = error(got, want);
        assert!(error <= 1.0, "{what}: {name} is off by {error} tolerances");
    }
}

/// One of the reference's results.
#[track_caller]
pub fn computed(all: &[Computed], tensor: Tensor) -> &Computed {
    let found = all.iter().find(|computed| computed.tensor == tensor);
    found.unwrap_or_else(|| panic!("no {}", tensor.name()))
}

/// Asserts that a result of a typed call is within the tolerance of the reference.
#[track_caller]
pub fn close<T: Element>(got: &[T], want: &[Computed], tensor: Tensor, what: &str) {
    let want = computed(want, tensor);
    let error = scaled_error(got, &want.values, &want.scale);
    let name = tensor.name();
    assert!(error <= 1.0, "{what}: {name} is off by {error} tolerances");
}

/// The largest error of a result in units of the tolerance.
pub fn error(got: &Values, want: &Computed) -> f64 {
    fn of<T: Element>(got: &Values, want: &Computed) -> f64 {
        let elements: Vec<T> = bytemuck::pod_collect_to_vec(&got.bytes);
        scaled_error(&elements, &want.values, &want.scale)
    }
    match got.used.format {
        Format::Elements(DType::F16) => of::<f16>(got, want),
        Format::Elements(DType::Bf16) => of::<bf16>(got, want),
        Format::Elements(DType::F32) => of::<f32>(got, want),
        Format::Elements(DType::F64) => of::<f64>(got, want),
        Format::Bits => {
            let roundings = SUM_ULPS * DType::F32.unit_roundoff();
            let bits = got.numbers().into_iter().zip(&want.values).zip(&want.scale);
            let is_wrong = |((bit, value), scale): ((f64, &f64), &f64)| {
                let undecided = value.abs() <= roundings * scale;
                !undecided && (bit == 1.0) != (value.is_nan() || *value > 0.0)
            };
            if bits.into_iter().any(is_wrong) {
                f64::INFINITY
            } else {
                0.0
            }
        }
        other => panic!("{other:?}"),
    }
}

/// A gradient of batch norm with each combination of the choices that change what is computed.
pub fn all_choices(gradient: &Operation) -> Vec<Operation> {
    let mut choices = Vec::new();
    for through in [Through::Batch, Through::Constant] {
        for param_grads in [true, false] {
            let mut chosen = gradient.clone();
            if let Pass::Backward(backward) = &mut chosen.pass {
                (backward.through, backward.param_grads) = (through, param_grads);
            }
            choices.push(chosen);
        }
    }
    choices
}

/// The types of data and parameters; statistics have the parameters' type.
pub fn types<T: Element, P: Element>() -> wgpu_norm::DTypes {
    wgpu_norm::DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(P::DTYPE)
}

/// A gradient of batch norm with gamma, epsilon 1e-5 and the defaults, with types as in `types`.
pub fn batch_norm_gradient<T: Element, P: Element>(
    shape: &[usize],
    format: DataFormat,
) -> Operation {
    let pass = wgpu_norm::Backward::default();
    Operation::new(Norm::batch(format), pass, shape, types::<T, P>())
}

/// The shape N × C × spatial in a data format.
pub fn in_format(shape: &[usize], format: DataFormat) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if format == DataFormat::Nxc {
        let channels = shape.remove(1);
        shape.push(channels);
    }
    shape
}

pub const FORMATS: [DataFormat; 2] = [DataFormat::Ncx, DataFormat::Nxc];

/// Sizes that divide small tensors like large ones, and those for both kinds of adapters.
pub fn sizes() -> [(&'static str, Tuning); 3] {
    let small = Tuning {
        channels_last_threads: 2,
        channels_last_vec4s: 3,
        channels_first_vec4s: 2,
        busy_workgroups: 1 << 20,
        tile: 64,
        prefetched_pages: 2,
        ..Tuning::SOFTWARE
    };
    [
        ("software", Tuning::SOFTWARE),
        ("gpu", Tuning::GPU),
        ("small", small),
    ]
}

/// Asserts that numbers are those worked out by hand.
pub fn near(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    let mut pairs = got.iter().zip(want);
    assert!(
        pairs.all(|(got, want)| (got - want).abs() < 1e-5),
        "{got:?}, not {want:?}"
    );
}
