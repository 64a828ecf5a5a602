//! `wgpu-norm batch-norm-backward`.

use crate::args::{BatchNormBackward, GpuArgs};
use crate::check::Comparison;
use crate::failure::Failure;
use crate::input::{Input, Tensor};
use crate::job::Job;
use crate::{attributes, output};
use half::{bf16, f16};
use wgpu_norm::reference::{self, channel_axes};
use wgpu_norm::{
    BatchNormArgs, BatchNormGrads, BatchNormOptions, DType, DataFormat, Element, Error,
    GpuBatchNorm, GpuContext, ParamOf,
};

/// Runs the subcommand.
pub fn run(command: &BatchNormBackward, gpu: &GpuArgs) -> Result<(), Failure> {
    let job = Job::start(&command.files)?;
    let options = options(command, &job.input)?;
    let arguments = Arguments::find(&job.input, options.data_format)?;
    let gpu = job.open_gpu(gpu)?;
    let (data, params) = (arguments.src.dtype(), arguments.mean.dtype());
    let compute = match (data, params) {
        (DType::F32, DType::F32) => compute::<f32, f32>,
        (DType::F16, DType::F32) => compute::<f16, f32>,
        (DType::F16, DType::F16) => compute::<f16, f16>,
        (DType::Bf16, DType::F32) => compute::<bf16, f32>,
        (DType::Bf16, DType::Bf16) => compute::<bf16, bf16>,
        (DType::F64, DType::F64) => compute::<f64, f64>,
        (data, params) => return Err(Error::ParamDType { data, params }.into()),
    };
    compute(job, &gpu, options, &arguments)
}

fn options(command: &BatchNormBackward, input: &Input) -> Result<BatchNormOptions, Failure> {
    let epsilon = attributes::number(command.epsilon, input, "epsilon")?;
    let epsilon = epsilon.ok_or(Failure::NoAttribute {
        attribute: "epsilon",
    })?;
    let data_format = attributes::named(command.data_format, input, "data_format")?;
    let statistics = attributes::named(command.statistics, input, "statistics")?;
    Ok(BatchNormOptions {
        data_format: data_format.unwrap_or_default(),
        statistics: statistics.unwrap_or_default(),
        param_grads: command.param_grads,
        ..BatchNormOptions::new(epsilon)
    })
}

/// The operator's tensors in the file, of shapes and element types that go together.
struct Arguments {
    src: Tensor,
    diff_dst: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Option<Tensor>,
}

impl Arguments {
    fn find(input: &Input, format: DataFormat) -> Result<Self, Failure> {
        let found = Self {
            src: input.tensor("src")?,
            diff_dst: input.tensor("diff_dst")?,
            mean: input.tensor("mean")?,
            variance: input.tensor("variance")?,
            gamma: input.optional("gamma")?,
        };
        let src = &found.src;
        found.diff_dst.expect_dtype(&[src.dtype()])?;
        found.diff_dst.expect_shape(src.shape(), " as src")?;

        let all = DType::ALL.iter().copied();
        let allowed: Vec<DType> = all.filter(|&p| src.dtype().accepts_params(p)).collect();
        found.mean.expect_dtype(&allowed)?;
        let channel = match format {
            DataFormat::Ncx => src.shape().get(1),
            DataFormat::Nxc => src.shape().last(),
        };
        let params = [
            Some(&found.mean),
            Some(&found.variance),
            found.gamma.as_ref(),
        ];
        for param in params.into_iter().flatten() {
            param.expect_dtype(&[found.mean.dtype()])?;
            // Without such an axis the rank is out of range, which the library says.
            if let Some(&channels) = channel {
                param.expect_shape(&[channels], " (one per channel of src)")?;
            }
        }
        Ok(found)
    }
}

/// The operator's tensors in memory.
struct Values<T, P> {
    src: Vec<T>,
    diff_dst: Vec<T>,
    mean: Vec<P>,
    variance: Vec<P>,
    gamma: Option<Vec<P>>,
}

impl<T: Element, P: ParamOf<T>> Values<T, P> {
    fn read(input: &Input, arguments: &Arguments) -> Result<Self, Failure> {
        let gamma = arguments.gamma.as_ref();
        Ok(Self {
            src: input.read(&arguments.src)?,
            diff_dst: input.read(&arguments.diff_dst)?,
            mean: input.read(&arguments.mean)?,
            variance: input.read(&arguments.variance)?,
            gamma: gamma.map(|gamma| input.read(gamma)).transpose()?,
        })
    }

    fn args<'a>(&'a self, shape: &'a [usize]) -> BatchNormArgs<'a, T, P> {
        BatchNormArgs {
            shape,
            src: &self.src,
            diff_dst: &self.diff_dst,
            mean: &self.mean,
            variance: &self.variance,
            gamma: self.gamma.as_deref(),
        }
    }
}

fn compute<T: Element, P: ParamOf<T>>(
    job: Job,
    gpu: &GpuContext,
    options: BatchNormOptions,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let shape = arguments.src.shape();
    let layer = GpuBatchNorm::new(gpu, options)?;
    // Refuses what cannot be computed before it is read.
    layer.plan(shape, T::DTYPE, P::DTYPE, arguments.gamma.is_some())?;
    job.progress.step("reading");
    let values = Values::<T, P>::read(&job.input, arguments)?;
    job.progress.step("computing");
    let grads = pollster::block_on(layer.backward(values.args(shape)))?;
    let comparison = if job.check {
        job.progress.step("checking against the reference");
        Some(compare(&values.args(shape), options, &grads)?)
    } else {
        None
    };

    let channels = arguments.mean.shape();
    let mut results = vec![output::Tensor::new("diff_src", shape, &grads.diff_src)];
    let params = [
        ("diff_gamma", &grads.diff_gamma),
        ("diff_beta", &grads.diff_beta),
    ];
    for (name, values) in params {
        let result = values
            .as_ref()
            .map(|v| output::Tensor::new(name, channels, v));
        results.extend(result);
    }
    job.finish(gpu, &arguments.src, &results, comparison)
}

fn compare<T: Element, P: ParamOf<T>>(
    args: &BatchNormArgs<'_, T, P>,
    options: BatchNormOptions,
    got: &BatchNormGrads<T, P>,
) -> Result<Comparison, Failure> {
    let gamma = args.gamma.map(to_f64);
    let want = reference::BatchNorm {
        shape: args.shape,
        channel_axes: &channel_axes(args.shape.len(), options.data_format),
        src: &to_f64(args.src),
        diff_dst: &to_f64(args.diff_dst),
        mean: &to_f64(args.mean),
        variance: &to_f64(args.variance),
        gamma: gamma.as_deref(),
        epsilon: options.epsilon,
        statistics: options.statistics,
        param_grads: options.param_grads,
    }
    .backward()?;
    let mut comparison = Comparison::default();
    comparison.add(
        "diff_src",
        &got.diff_src,
        &want.diff_src,
        &want.diff_src_scale,
    );
    if let Some(diff_gamma) = &got.diff_gamma {
        comparison.add(
            "diff_gamma",
            diff_gamma,
            &want.diff_gamma,
            &want.diff_gamma_scale,
        );
    }
    if let Some(diff_beta) = &got.diff_beta {
        comparison.add(
            "diff_beta",
            diff_beta,
            &want.diff_beta,
            &want.diff_beta_scale,
        );
    }
    Ok(comparison)
}

fn to_f64<T: Element>(values: &[T]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}
