//! The layer, compared with the float64 reference for the whole batch; and its errors if ranks do different things.

use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use std::time::Duration;
use wgpu_norm::synchronized::run_into;
use wgpu_norm::{
    Backward, BackwardArgs, BatchNormOptions, DType, DataFormat, Element, Forward, ForwardArgs,
    GpuContext, Norm, Operation, Output, ParamOf, RunningStatistics, RunningUpdate,
    RunningVariance, SavedRef, Tensor, bytemuck, half,
};
use wgpu_norm_mpi::{Communicator, Error, Options, SyncBatchNorm};
use wgpu_norm_verify::Random;
use wgpu_norm_verify::reference::{Computed, compute, scaled_error, to_f64};

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
    // The last rank has no samples, then the first one.
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

/// Both passes over a split batch: this rank's part, and the results that all ranks share.
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

    let options = BatchNormOptions::new(data_format).epsilon(1e-3);
    let mut layer = SyncBatchNorm::new(gpu, options, world, Options::default()).unwrap();
    let mut running = [
        vec![T::Sum::from_f64(1.0); channels],
        vec![T::Sum::from_f64(2.0); channels],
    ];
    let [mean, variance] = &mut running;
    let update = RunningUpdate::new(0.1, RunningVariance::Biased);
    let (own_src, own_diff_dst) = (&src[own.clone()], &diff_dst[own.clone()]);
    let args = ForwardArgs::new(&own_shape, own_src)
        .gamma(&gamma)
        .running(RunningStatistics::new(mean, variance, update));
    let output = layer.forward(args).unwrap();
    let statistics = &output.saved;
    let args = BackwardArgs::new(&own_shape, own_src, own_diff_dst, statistics);
    let grads = layer.backward(args.gamma(&gamma)).unwrap();
    let (diff_gamma, diff_beta) = (grads.diff_gamma.unwrap(), grads.diff_beta.unwrap());

    // The same bits everywhere.
    let [running_mean, running_variance] = &running;
    let numbers = [
        &statistics.mean,
        &statistics.variance,
        running_mean,
        running_variance,
    ];
    let numbers = numbers
        .iter()
        .flat_map(|v| bytemuck::cast_slice::<_, u8>(v).to_vec());
    let params = [&diff_gamma, &diff_beta];
    let params = params
        .iter()
        .flat_map(|v| bytemuck::cast_slice::<_, u8>(v).to_vec());
    let bytes: Vec<u8> = numbers.chain(params).collect();
    let communicator = Communicator::duplicate(world, Options::default()).unwrap();
    let gathered = communicator.all_gather(&bytes).unwrap();
    assert!(
        gathered.chunks(bytes.len()).all(|other| other == bytes),
        "{what}"
    );

    // The reference of the whole batch.
    fn wide<E: Element>(values: &[E]) -> Vec<f64> {
        to_f64("a tensor", values).unwrap()
    }
    let (mean, variance) = (wide(&statistics.mean), wide(&statistics.variance));
    let (src, diff_dst, gamma) = (wide(&src), wide(&diff_dst), wide(&gamma));
    let types = wgpu_norm::DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(T::Sum::DTYPE);
    let forward = Operation::new(Norm::batch(data_format), Forward::default(), shape, types)
        .with_epsilon(1e-3)
        .with_params(true, false);
    let tensors = [
        (Tensor::Src, &*src),
        (Tensor::DiffDst, &diff_dst),
        (Tensor::Mean, &mean),
        (Tensor::Variance, &variance),
        (Tensor::Gamma, &gamma),
    ];
    let mut want = compute(&forward, &tensors).unwrap();
    let gradient = forward.gradient().unwrap();
    want.extend(compute(&gradient, &tensors).unwrap());
    let close = |tensor: Tensor, error: &dyn Fn(&Computed) -> f64| {
        let want = want.iter().find(|computed| computed.tensor == tensor);
        let error = error(want.unwrap());
        assert!(error <= 1.0, "{what}: {}: {error}", tensor.name());
    };
    let part = |got: &[T], want: &Computed| {
        scaled_error(got, &want.values[own.clone()], &want.scale[own.clone()])
    };
    let sums = |got: &[T::Sum], want: &Computed| scaled_error(got, &want.values, &want.scale);
    let params = |got: &[P], want: &Computed| scaled_error(got, &want.values, &want.scale);
    close(Tensor::Dst, &|want| part(&output.dst, want));
    close(Tensor::DiffSrc, &|want| part(&grads.diff_src, want));
    close(Tensor::Mean, &|want| sums(&statistics.mean, want));
    close(Tensor::Variance, &|want| sums(&statistics.variance, want));
    close(Tensor::DiffGamma, &|want| params(&diff_gamma, want));
    close(Tensor::DiffBeta, &|want| params(&diff_beta, want));
}

/// Two rows on each rank, whose x̂ is -1 and 1. diff_beta of 16 bits would be 256 on the first rank, and 0 in the end.
pub fn parameters_of_16_bits(world: &SimpleCommunicator, gpu: &GpuContext) {
    let diff_dst = match world.rank() {
        0 => [256.0, 256.0, 1.0, 1.0],
        _ => [-256.0, -256.0, 0.0, 0.0],
    };
    let norm = Norm::layer(-1);
    let operation = Operation::new(norm, Backward::default(), &[2, 2], DType::Bf16);
    let [src, diff_dst] = [[-1.0, 1.0, -1.0, 1.0], diff_dst].map(|row| DType::Bf16.encode(row));
    let [zeros, ones] = [[0.0; 2], [1.0; 2]].map(|row| DType::F32.encode(row));
    let gamma = DType::Bf16.encode([1.0; 2]);
    let inputs = [
        (Tensor::Src, &*src),
        (Tensor::DiffDst, &diff_dst),
        (Tensor::Mean, &zeros),
        (Tensor::Variance, &ones),
        (Tensor::Gamma, &gamma),
    ];
    let (mut diff_gamma, mut diff_beta) = ([0; 4], [0; 4]);
    let mut outputs = [
        (Tensor::DiffGamma, &mut diff_gamma[..]),
        (Tensor::DiffBeta, &mut diff_beta),
    ];
    let ranks = Communicator::duplicate(world, Options::default()).unwrap();
    pollster::block_on(run_into(&operation, gpu, ranks, &inputs, &mut outputs)).unwrap();
    let [diff_gamma, diff_beta] =
        [diff_gamma, diff_beta].map(|bytes| DType::Bf16.values(&bytes).collect::<Vec<_>>());
    assert_eq!(
        (&*diff_gamma, &*diff_beta),
        (&[-1.0, 1.0][..], &[1.0; 2][..])
    );
}

fn layer(
    world: &SimpleCommunicator,
    gpu: &GpuContext,
    epsilon: f64,
    timeout: Duration,
) -> Result<SyncBatchNorm, Error> {
    let options = BatchNormOptions::new(DataFormat::Nxc).epsilon(epsilon);
    let waits = Options {
        timeout,
        ..Options::default()
    };
    SyncBatchNorm::new(gpu, options, world, waits)
}

const SHORT: Duration = Duration::from_secs(2);
const SRC: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fn forward(layer: &mut SyncBatchNorm) -> Result<Output<f32, f32>, Error> {
    layer.forward(ForwardArgs::new(&[2, 3], &SRC))
}

pub fn a_wrong_epsilon(world: &SimpleCommunicator, gpu: &GpuContext) {
    let epsilon = if world.rank() == 1 { 1e-3 } else { 1e-5 };
    let mut layer = layer(world, gpu, epsilon, SHORT).unwrap();
    assert_eq!(
        forward(&mut layer).unwrap_err().to_string(),
        "epsilon: expected the same on all ranks, got 1e-5 on ranks 0, 2; 1e-3 on rank 1"
    );
}

pub fn a_skipped_call(world: &SimpleCommunicator, gpu: &GpuContext) {
    let mut layer = layer(world, gpu, 1e-5, SHORT).unwrap();
    let error = match world.rank() {
        1 => {
            let statistics = SavedRef::moments(&[0.0; 3], &[1.0; 3]);
            let args = BackwardArgs::new(&[2, 3], &SRC, &SRC, statistics);
            layer.backward(args).unwrap_err()
        }
        _ => forward(&mut layer).unwrap_err(),
    };
    assert_eq!(
        error.to_string(),
        "operation: expected the same on all ranks, got batch_norm_forward on ranks 0, 2; batch_norm_backward on rank 1"
    );
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
