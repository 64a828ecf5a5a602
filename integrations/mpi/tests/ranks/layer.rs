//! The layer: held to the float64 reference of the whole batch, and what happens where ranks do not do the same.

use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use std::time::Duration;
use wgpu_norm::reference::{self, scaled_error, to_f64};
use wgpu_norm::{
    BatchNormBackwardArgs, BatchNormForwardArgs, BatchNormOptions, BatchNormOutput, DataFormat,
    Element, GpuContext, ParamGrads, ParamOf, RunningStatistics, RunningUpdate, RunningVariance,
    Statistics, bytemuck, half,
};
use wgpu_norm_mpi::{Communicator, Error, Options, SyncBatchNorm};
use wgpu_norm_verify::Random;

/// The same random numbers on every rank.
fn random(shapes: u64) -> Random {
    Random::new(shapes)
}

fn below(random: &mut Random, limit: usize) -> usize {
    (random.bits() % limit as u64) as usize
}

pub fn random_shapes(world: &SimpleCommunicator, gpu: &GpuContext) {
    let mut random = random(9);
    for case in 0..4 {
        let samples = world.size() as usize + below(&mut random, 9);
        let (channels, inner) = (1 + below(&mut random, 40), 1 + below(&mut random, 60));
        let format = [DataFormat::Ncx, DataFormat::Nxc][case % 2];
        let shape = match format {
            DataFormat::Ncx => vec![samples, channels, inner],
            DataFormat::Nxc => vec![samples, inner, channels],
        };
        let mut cuts: Vec<usize> = (1..world.size())
            .map(|_| below(&mut random, samples + 1))
            .collect();
        cuts.extend([0, samples]);
        cuts.sort_unstable();
        let split = |rank: usize| cuts[rank]..cuts[rank + 1];
        check::<f32, f32>(world, gpu, &shape, format, split);
        check::<half::bf16, f32>(world, gpu, &shape, format, split);
        check::<half::f16, half::f16>(world, gpu, &shape, format, split);
        if gpu.supports(wgpu_norm::DType::F64) {
            check::<f64, f64>(world, gpu, &shape, format, split);
        }
    }
}

pub fn an_empty_rank(world: &SimpleCommunicator, gpu: &GpuContext) {
    let ranks = world.size() as usize;
    // The last rank has none, then the first one.
    let last = |rank: usize| {
        if rank + 1 == ranks {
            7..7
        } else {
            rank * 7 / (ranks - 1)..(rank + 1) * 7 / (ranks - 1)
        }
    };
    check::<f32, f32>(world, gpu, &[7, 5, 9], DataFormat::Ncx, last);
    let first = |rank: usize| {
        if rank == 0 {
            0..0
        } else {
            (rank - 1) * 7 / (ranks - 1)..rank * 7 / (ranks - 1)
        }
    };
    check::<f32, f32>(world, gpu, &[7, 5, 9], DataFormat::Ncx, first);
}

/// Both passes over a split batch: this rank's part, and what all have alike.
fn check<T: Element, P: ParamOf<T>>(
    world: &SimpleCommunicator,
    gpu: &GpuContext,
    shape: &[usize],
    data_format: DataFormat,
    split: impl Fn(usize) -> std::ops::Range<usize>,
) {
    let samples = split(world.rank() as usize);
    let what = format!("{shape:?} {data_format:?} {samples:?} of {}", T::DTYPE);
    let elements = shape.iter().product();
    let channels = match data_format {
        DataFormat::Ncx => shape[1],
        DataFormat::Nxc => shape[shape.len() - 1],
    };
    let mut random = random(elements as u64);
    let src: Vec<T> = random.vec(elements, 2.0, 0.5);
    let diff_dst: Vec<T> = random.vec(elements, 1.0, 0.1);
    let gamma: Vec<P> = random.vec(channels, 1.0, 0.25);
    let sample = elements / shape[0];
    let own = samples.start * sample..samples.end * sample;
    let mut own_shape = shape.to_vec();
    own_shape[0] = samples.len();

    let options = BatchNormOptions {
        data_format,
        ..BatchNormOptions::new(1e-3)
    };
    let mut layer =
        SyncBatchNorm::new(world, gpu, options, &own_shape, Options::default()).unwrap();
    let mut running = [
        vec![T::Sum::from_f64(1.0); channels],
        vec![T::Sum::from_f64(2.0); channels],
    ];
    let [mean, variance] = &mut running;
    let output: BatchNormOutput<T, T::Sum> = layer
        .forward(BatchNormForwardArgs {
            shape: &own_shape,
            src: &src[own.clone()],
            gamma: Some(&gamma),
            beta: None,
            residual: None,
            running: Some(RunningStatistics {
                mean,
                variance,
                update: RunningUpdate {
                    weight: 0.1,
                    variance: RunningVariance::Biased,
                },
            }),
        })
        .unwrap();
    let grads = layer
        .backward(BatchNormBackwardArgs {
            shape: &own_shape,
            src: &src[own.clone()],
            diff_dst: &diff_dst[own.clone()],
            mean: &output.mean,
            variance: &output.variance,
            gamma: Some(&gamma),
            beta: None,
            mask: None,
        })
        .unwrap();
    let (diff_gamma, diff_beta) = (grads.diff_gamma.unwrap(), grads.diff_beta.unwrap());

    // The same bits everywhere.
    let [running_mean, running_variance] = &running;
    let statistics = [
        &output.mean,
        &output.variance,
        running_mean,
        running_variance,
    ];
    let statistics = statistics
        .iter()
        .flat_map(|v| bytemuck::cast_slice::<_, u8>(v).to_vec());
    let params = [&diff_gamma, &diff_beta];
    let params = params
        .iter()
        .flat_map(|v| bytemuck::cast_slice::<_, u8>(v).to_vec());
    let bytes: Vec<u8> = statistics.chain(params).collect();
    let communicator = Communicator::duplicate(world, Options::default()).unwrap();
    let gathered = communicator.all_gather(&bytes).unwrap();
    assert!(
        gathered.chunks(bytes.len()).all(|other| other == bytes),
        "{what}"
    );

    // The reference of the whole batch.
    let wide = |values: &[T]| to_f64("a tensor", values).unwrap();
    let (src, diff_dst) = (wide(&src), wide(&diff_dst));
    let gamma = to_f64("gamma", &gamma).unwrap();
    let axes = reference::channel_axes(shape.len(), data_format);
    let forward = reference::BatchNormForward {
        shape,
        channel_axes: &axes,
        src: &src,
        gamma: Some(&gamma),
        beta: None,
        epsilon: options.epsilon,
    };
    let forward = forward.train().unwrap();
    let close = |name: &str, error: f64| assert!(error <= 1.0, "{what}: {name}: {error}");
    let (dst, scale) = (&forward.dst[own.clone()], &forward.dst_scale[own.clone()]);
    close("dst", scaled_error(&output.dst, dst, scale));
    close(
        "mean",
        scaled_error(&output.mean, &forward.mean, &forward.mean_scale),
    );
    let variance = scaled_error(&output.variance, &forward.variance, &forward.variance_scale);
    close("variance", variance);
    let gradients = reference::BatchNorm {
        shape,
        channel_axes: &axes,
        src: &src,
        diff_dst: &diff_dst,
        mean: &to_f64("mean", &output.mean).unwrap(),
        variance: &to_f64("variance", &output.variance).unwrap(),
        gamma: Some(&gamma),
        epsilon: options.epsilon,
        statistics: Through::Batch,
        param_grads: ParamGrads::Both,
    };
    let gradients = gradients.backward().unwrap();
    let (want, scale) = (
        &gradients.diff_src[own.clone()],
        &gradients.diff_src_scale[own],
    );
    close("diff_src", scaled_error(&grads.diff_src, want, scale));
    let error = scaled_error(
        &diff_gamma,
        &gradients.diff_gamma,
        &gradients.diff_gamma_scale,
    );
    close("diff_gamma", error);
    let error = scaled_error(&diff_beta, &gradients.diff_beta, &gradients.diff_beta_scale);
    close("diff_beta", error);
}

fn layer(
    world: &SimpleCommunicator,
    gpu: &GpuContext,
    epsilon: f64,
    timeout: Duration,
) -> Result<SyncBatchNorm, Error> {
    let options = BatchNormOptions::new(epsilon);
    let waits = Options {
        timeout,
        ..Options::default()
    };
    SyncBatchNorm::new(world, gpu, options, &[2, 3], waits)
}

const SHORT: Duration = Duration::from_secs(2);
const SRC: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fn forward(layer: &mut SyncBatchNorm) -> Result<BatchNormOutput<f32, f32>, Error> {
    layer.forward(BatchNormForwardArgs {
        shape: &[2, 3],
        src: &SRC,
        gamma: None::<&[f32]>,
        beta: None,
        residual: None,
        running: None,
    })
}

pub fn a_wrong_epsilon(world: &SimpleCommunicator, gpu: &GpuContext) {
    let epsilon = if world.rank() == 1 { 1e-3 } else { 1e-5 };
    let error = layer(world, gpu, epsilon, SHORT).unwrap_err();
    assert_eq!(
        error.to_string(),
        "epsilon: expected the same on all ranks, got 1e-5 on ranks 0, 2; 1e-3 on rank 1"
    );
}

pub fn a_skipped_call(world: &SimpleCommunicator, gpu: &GpuContext) {
    let mut layer = layer(world, gpu, 1e-5, SHORT).unwrap();
    if world.rank() != 1 {
        let error = forward(&mut layer).unwrap_err().to_string();
        assert!(
            error.contains("forward 1 of f32, f32, f32 on ranks 0, 2"),
            "{error}"
        );
        assert!(
            error.contains("backward 1 of f32, f32, f32 on rank 1"),
            "{error}"
        );
        return;
    }
    let error = layer.backward::<f32, f32>(BatchNormBackwardArgs {
        shape: &[2, 3],
        src: &SRC,
        diff_dst: &SRC,
        mean: &[0.0; 3],
        variance: &[1.0; 3],
        gamma: None,
        beta: None,
        mask: None,
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("on rank 1"), "{error}");
}

pub fn a_rank_that_does_not_come(world: &SimpleCommunicator, gpu: &GpuContext) {
    let mut layer = layer(world, gpu, 1e-5, SHORT).unwrap();
    if world.rank() == 1 {
        std::thread::sleep(Duration::from_secs(600));
    }
    drop(forward(&mut layer));
}

pub fn a_killed_rank(world: &SimpleCommunicator, gpu: &GpuContext) {
    let mut layer = layer(world, gpu, 1e-5, Duration::from_secs(20)).unwrap();
    forward(&mut layer).unwrap();
    if world.rank() == 1 {
        std::process::abort();
    }
    drop(forward(&mut layer));
    std::thread::sleep(Duration::from_secs(600));
}
