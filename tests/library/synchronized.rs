//! Synchronized batch norm: ranks are threads here, each with a part of the batch, held to the reference of the whole.

use crate::common::data::{Random, to_f64};
use crate::common::{Subject, subjects, takes_all};
use pollster::block_on;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use wgpu_norm::half::{bf16, f16};
use wgpu_norm::reference::{self, scaled_error};
use wgpu_norm::synchronized::{AllGather, SyncBatchNorm, run_into};
use wgpu_norm::{
    Activation, Backward, BatchNormBackwardArgs, BatchNormForwardArgs, BatchNormOptions,
    BatchNormOutput, Channels, DType, DataFormat, Element, Epilogue, Error, Forward, GpuBatchNorm,
    Grads, Norm, Operation, ParamGrads, ParamOf, Pass, Ranks, Residual, RunningStatistics,
    RunningUpdate, RunningVariance, Statistics, Tensor, TensorUse, bytemuck,
};

/// Threads that stand for ranks.
#[derive(Clone, Debug)]
struct Threads {
    rank: usize,
    messages: Arc<Vec<Mutex<Vec<u8>>>>,
    barrier: Arc<Barrier>,
}

impl Threads {
    fn all(ranks: usize) -> Vec<Self> {
        let messages: Arc<Vec<_>> = Arc::new((0..ranks).map(|_| Mutex::default()).collect());
        let barrier = Arc::new(Barrier::new(ranks));
        (0..ranks)
            .map(|rank| Self {
                rank,
                messages: messages.clone(),
                barrier: barrier.clone(),
            })
            .collect()
    }
}

impl AllGather for Threads {
    type Error = Error;

    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.messages.len()
    }

    async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        *self.messages[self.rank].lock().unwrap() = bytes.to_vec();
        self.barrier.wait();
        let all = self.messages.iter().flat_map(|m| m.lock().unwrap().clone());
        let all = all.collect();
        self.barrier.wait();
        Ok(all)
    }
}

/// Does the same on every rank, side by side.
fn on_ranks<T: Send>(ranks: usize, run: impl Fn(Threads) -> T + Sync) -> Vec<T> {
    let run = &run;
    thread::scope(|scope| {
        let threads = Threads::all(ranks).into_iter();
        let threads: Vec<_> = threads.map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// What a rank computes: both passes, and running statistics.
type Results<T, P> = (
    BatchNormOutput<T, <T as Element>::Sum>,
    Grads<T, P>,
    [Vec<<T as Element>::Sum>; 2],
);

/// A whole batch.
struct Batch<T, P> {
    shape: Vec<usize>,
    options: BatchNormOptions,
    src: Vec<T>,
    diff_dst: Vec<T>,
    gamma: Vec<P>,
    beta: Vec<P>,
}

const UPDATE: RunningUpdate = RunningUpdate {
    weight: 0.25,
    variance: RunningVariance::Unbiased,
};

impl<T: Element, P: ParamOf<T> + PartialEq> Batch<T, P> {
    fn random(shape: &[usize], data_format: DataFormat) -> Self {
        let mut random = Random::new(shape.iter().product::<usize>() as u64);
        let n = shape.iter().product();
        let channels = match data_format {
            DataFormat::Ncx => shape[1],
            DataFormat::Nxc => shape[shape.len() - 1],
        };
        Self {
            shape: shape.to_vec(),
            options: BatchNormOptions {
                data_format,
                ..BatchNormOptions::new(1e-3)
            },
            src: random.vec(n, 2.0, 0.5),
            diff_dst: random.vec(n, 1.0, 0.1),
            gamma: random.vec(channels, 1.0, 0.25),
            beta: random.vec(channels, 1.0, 0.0),
        }
    }

    /// The shape and elements of some samples.
    fn part(&self, samples: std::ops::Range<usize>) -> (Vec<usize>, std::ops::Range<usize>) {
        let sample: usize = self.shape[1..].iter().product();
        let mut shape = self.shape.clone();
        shape[0] = samples.len();
        (shape, samples.start * sample..samples.end * sample)
    }

    /// Splits the batch, computes both passes on as many ranks, and holds their results to the reference.
    fn check(&self, subject: &Subject, samples: &[usize]) {
        let what = format!("{:?} as {samples:?} on {}", self.shape, subject.name);
        let channels = self.gamma.len();
        let starts: Vec<usize> = samples
            .iter()
            .scan(0, |end, samples| {
                let start = *end;
                *end += samples;
                Some(start)
            })
            .collect();
        let results = on_ranks(samples.len(), |rank| {
            let own = rank.rank;
            let (shape, elements) = self.part(starts[own]..starts[own] + samples[own]);
            block_on(async {
                let mut layer =
                    SyncBatchNorm::new(rank, &subject.gpu, self.options, &shape).await?;
                let mut running = [
                    vec![T::Sum::from_f64(1.0); channels],
                    vec![T::Sum::from_f64(2.0); channels],
                ];
                let [mean, variance] = &mut running;
                let output = layer
                    .forward::<T, P>(BatchNormForwardArgs {
                        shape: &shape,
                        src: &self.src[elements.clone()],
                        gamma: Some(&self.gamma),
                        beta: Some(&self.beta),
                        residual: None,
                        running: Some(RunningStatistics {
                            mean,
                            variance,
                            update: UPDATE,
                        }),
                    })
                    .await?;
                let grads = layer
                    .backward(BatchNormBackwardArgs {
                        shape: &shape,
                        src: &self.src[elements.clone()],
                        diff_dst: &self.diff_dst[elements],
                        mean: &output.mean,
                        variance: &output.variance,
                        gamma: Some(&self.gamma),
                        beta: None,
                        mask: None,
                    })
                    .await?;
                Ok::<_, Error>((output, grads, running))
            })
            .unwrap_or_else(|error| panic!("{what}: {error}"))
        });
        self.compare(&what, &results);
    }

    fn compare(&self, what: &str, results: &[Results<T, P>]) {
        let axes = reference::channel_axes(self.shape.len(), self.options.data_format);
        let [src, diff_dst] = [&self.src, &self.diff_dst].map(|values| to_f64(values));
        let [gamma, beta] = [&self.gamma, &self.beta].map(|values| to_f64(values));
        let forward = reference::BatchNormForward {
            shape: &self.shape,
            channel_axes: &axes,
            src: &src,
            gamma: Some(&gamma),
            beta: Some(&beta),
            epsilon: self.options.epsilon,
        };
        let forward = forward.train().unwrap();
        let (first, first_grads, first_running) = &results[0];
        let close = |name: &str, error: f64| assert!(error <= 1.0, "{what}: {name}: {error}");
        let dst: Vec<T> = results.iter().flat_map(|(o, ..)| o.dst.clone()).collect();
        close("dst", scaled_error(&dst, &forward.dst, &forward.dst_scale));
        close(
            "mean",
            scaled_error(&first.mean, &forward.mean, &forward.mean_scale),
        );
        let variance = scaled_error(&first.variance, &forward.variance, &forward.variance_scale);
        close("variance", variance);
        let count = (src.len() / gamma.len()) as u64;
        let old = vec![2.0; gamma.len()];
        let unbiased = UPDATE.variance == RunningVariance::Unbiased;
        let running =
            reference::running(&old, &forward.variance, UPDATE.weight, count, unbiased).unwrap();
        let scale: Vec<f64> = running.iter().map(|value| 3.0 * value.abs()).collect();
        close(
            "running_variance",
            scaled_error(&first_running[1], &running, &scale),
        );

        let [mean, variance] = [&first.mean, &first.variance].map(|values| to_f64(values));
        let gradients = reference::BatchNorm {
            shape: &self.shape,
            channel_axes: &axes,
            src: &src,
            diff_dst: &diff_dst,
            mean: &mean,
            variance: &variance,
            gamma: Some(&gamma),
            epsilon: self.options.epsilon,
            statistics: self.options.statistics,
            param_grads: self.options.param_grads,
        };
        let gradients = gradients.backward().unwrap();
        let diff_src: Vec<T> = results
            .iter()
            .flat_map(|(_, g, _)| g.diff_src.clone())
            .collect();
        let error = scaled_error(&diff_src, &gradients.diff_src, &gradients.diff_src_scale);
        close("diff_src", error);
        if self.options.param_grads == ParamGrads::Both {
            let got = first_grads.diff_gamma.as_ref().unwrap();
            let error = scaled_error(got, &gradients.diff_gamma, &gradients.diff_gamma_scale);
            close("diff_gamma", error);
            let got = first_grads.diff_beta.as_ref().unwrap();
            let error = scaled_error(got, &gradients.diff_beta, &gradients.diff_beta_scale);
            close("diff_beta", error);
        }
        for (output, grads, running) in results {
            assert_eq!(output.mean, first.mean, "{what}");
            assert_eq!(output.variance, first.variance, "{what}");
            assert_eq!(running, first_running, "{what}");
            assert_eq!(grads.diff_gamma, first_grads.diff_gamma, "{what}");
            assert_eq!(grads.diff_beta, first_grads.diff_beta, "{what}");
        }
    }
}

fn splits(total: usize) -> Vec<Vec<usize>> {
    let uneven = vec![1, total - 3, 2];
    let with_none = vec![total - 5, 0, 5];
    let many = vec![2, 1, 0, total - 4, 1];
    match takes_all() {
        true => vec![
            vec![total],
            vec![total / 2, total - total / 2],
            uneven,
            with_none,
            many,
        ],
        false => vec![uneven, many],
    }
}

fn on_every_adapter<T: Element, P: ParamOf<T> + PartialEq>() {
    let shapes = [
        (&[8, 5, 7, 3][..], DataFormat::Ncx),
        (&[9, 35, 4], DataFormat::Nxc),
        (&[12, 6, 64], DataFormat::Ncx),
    ];
    let taken = match takes_all() || T::DTYPE == DType::F32 {
        true => &shapes[..],
        false => &shapes[..2],
    };
    for subject in subjects().iter().filter(|subject| subject.takes::<T>()) {
        for &(shape, data_format) in taken {
            for split in splits(shape[0]) {
                Batch::<T, P>::random(shape, data_format).check(subject, &split);
            }
        }
    }
}

#[test]
fn ranks_agree_with_the_whole_batch() {
    on_every_adapter::<f32, f32>();
    on_every_adapter::<f16, f32>();
    on_every_adapter::<bf16, f32>();
    on_every_adapter::<f64, f64>();
}

#[test]
fn constant_statistics_and_frozen_parameters() {
    for subject in subjects() {
        for (statistics, param_grads) in [
            (Through::Constant, ParamGrads::Both),
            (Through::Batch, ParamGrads::Frozen),
        ] {
            let mut batch = Batch::<f32, f32>::random(&[8, 5, 7, 3], DataFormat::Ncx);
            batch.options.statistics = statistics;
            batch.options.param_grads = param_grads;
            batch.check(subject, &[3, 0, 5]);
        }
    }
}

/// What the layer on one process answers with an empty result, ranks do, too.
#[test]
fn without_channels_or_elements() {
    let subject = &subjects()[0];
    for (shape, channels) in [
        (&[3, 0][..], 0),
        (&[3, 0, 2], 0),
        (&[3, 2, 0], 2),
        (&[0, 2], 2),
    ] {
        let options = BatchNormOptions {
            data_format: DataFormat::Ncx,
            activation: Activation::Relu,
            ..BatchNormOptions::new(1e-3)
        };
        let params = vec![1.0_f32; channels];
        let alone = GpuBatchNorm::new(&subject.gpu, options).unwrap();
        let results = on_ranks(2, |rank| {
            let mut running = [vec![2.0; channels], vec![3.0; channels]];
            let [mean, variance] = &mut running;
            let forward = BatchNormForwardArgs {
                shape,
                src: &[],
                gamma: Some(&*params),
                beta: Some(&params),
                residual: Some(&[]),
                running: Some(RunningStatistics {
                    mean,
                    variance,
                    update: UPDATE,
                }),
            };
            let backward = BatchNormBackwardArgs {
                shape,
                src: &[],
                diff_dst: &[],
                mean: &params,
                variance: &params,
                gamma: Some(&*params),
                beta: None,
                mask: Some(&[]),
            };
            let results = block_on(async {
                let mut layer = SyncBatchNorm::new(rank, &subject.gpu, options, shape).await?;
                let output = layer.forward::<f32, f32>(forward).await?;
                Ok::<_, Error>((output, layer.backward::<f32, f32>(backward).await?))
            });
            let (output, grads) = results.unwrap();
            (output, grads, running)
        });
        let want = block_on(alone.forward(BatchNormForwardArgs {
            shape,
            src: &[0.0_f32; 0],
            gamma: Some(&*params),
            beta: Some(&params),
            residual: Some(&[]),
            running: None,
        }))
        .unwrap();
        for (output, grads, running) in results {
            assert_eq!(output, want, "{shape:?}");
            assert!(grads.diff_src.is_empty(), "{shape:?}");
            assert_eq!(grads.diff_gamma, Some(vec![0.0; channels]), "{shape:?}");
            assert_eq!(grads.diff_beta, Some(vec![0.0; channels]), "{shape:?}");
            assert_eq!(
                running,
                [vec![2.0; channels], vec![3.0; channels]],
                "{shape:?}"
            );
        }
    }
}

/// Of two ranks, with a residual and ReLU: the mask leads the gradient.
#[test]
fn a_residual_and_an_activation() {
    for subject in subjects() {
        let mut batch = Batch::<f32, f32>::random(&[6, 4, 8, 4], DataFormat::Ncx);
        batch.options.activation = Activation::Relu;
        let results = on_ranks(2, |rank| {
            let (shape, elements) = batch.part(2 * rank.rank..2 + 4 * rank.rank);
            block_on(async {
                let mut layer =
                    SyncBatchNorm::new(rank, &subject.gpu, batch.options, &shape).await?;
                let output = layer
                    .forward::<f32, f32>(BatchNormForwardArgs {
                        shape: &shape,
                        src: &batch.src[elements.clone()],
                        gamma: Some(&batch.gamma),
                        beta: Some(&batch.beta),
                        residual: Some(&batch.diff_dst[elements.clone()]),
                        running: None,
                    })
                    .await?;
                let grads = layer
                    .backward(BatchNormBackwardArgs {
                        shape: &shape,
                        src: &batch.src[elements.clone()],
                        diff_dst: &batch.diff_dst[elements],
                        mean: &output.mean,
                        variance: &output.variance,
                        gamma: Some(&batch.gamma),
                        beta: None,
                        mask: output.mask.as_deref(),
                    })
                    .await?;
                Ok::<_, Error>((output, grads))
            })
            .unwrap()
        });
        let mut index = 0;
        for (output, grads) in &results {
            let residual = grads.diff_residual.as_ref().unwrap();
            for (dst, residual) in output.dst.iter().zip(residual) {
                let want = if *dst > 0.0 {
                    batch.diff_dst[index]
                } else {
                    0.0
                };
                assert_eq!(*residual, want, "element {index} on {}", subject.name);
                index += 1;
            }
        }
        assert_eq!(index, batch.src.len());
    }
}

fn layer(
    rank: Threads,
    subject: &Subject,
    epsilon: f64,
    shape: &[usize],
) -> Result<SyncBatchNorm<Threads>, Error> {
    block_on(SyncBatchNorm::new(
        rank,
        &subject.gpu,
        BatchNormOptions::new(epsilon),
        shape,
    ))
}

fn forward(
    layer: &mut SyncBatchNorm<Threads>,
    src: &[f32],
    running: Option<&mut [f32; 2]>,
) -> Result<BatchNormOutput<f32, f32>, Error> {
    let mut halves = running.map(|running| running.split_at_mut(1));
    block_on(layer.forward(BatchNormForwardArgs {
        shape: &[src.len(), 1],
        src,
        gamma: None::<&[f32]>,
        beta: None,
        residual: None,
        running: halves.as_mut().map(|(mean, variance)| RunningStatistics {
            mean,
            variance,
            update: UPDATE,
        }),
    }))
}

#[test]
fn ranks_that_do_not_do_the_same_are_told_so() {
    let subject = &subjects()[0];
    let errors = on_ranks(3, |rank| {
        let epsilon = if rank.rank == 1 { 1e-3 } else { 1e-5 };
        layer(rank, subject, epsilon, &[2, 1])
            .unwrap_err()
            .to_string()
    });
    let want = "epsilon: expected the same on all ranks, got 1e-5 on ranks 0, 2; 1e-3 on rank 1";
    assert_eq!(errors, [want; 3]);

    // One whose arguments are wrong fails with its own error, and so do the others with that.
    let errors = on_ranks(2, |rank| {
        let own = rank.rank;
        let mut layer = layer(rank, subject, 1e-5, &[2, 1]).unwrap();
        let src: &[f32] = &[1.0, 2.0];
        let failed = match own {
            1 => block_on(layer.forward(BatchNormForwardArgs {
                shape: &[3, 1],
                src,
                gamma: None::<&[f32]>,
                beta: None,
                residual: None,
                running: None,
            })),
            _ => forward(&mut layer, src, None),
        };
        let failed = failed.unwrap_err().to_string();
        // The next call is sound again.
        assert_eq!(forward(&mut layer, src, None).unwrap().mean, [1.5]);
        failed
    });
    assert!(errors[0].contains("failed on rank 1"), "{errors:?}");
    assert!(
        errors[1].contains("src: expected 3 elements, got 2"),
        "{errors:?}"
    );

    // Another call than the others'.
    let errors = on_ranks(2, |rank| {
        let own = rank.rank;
        let mut layer = layer(rank, subject, 1e-5, &[2, 1]).unwrap();
        let src: &[f32] = &[1.0, 2.0];
        match own {
            0 => forward(&mut layer, src, None).unwrap_err().to_string(),
            _ => block_on(layer.backward::<f32, f32>(BatchNormBackwardArgs {
                shape: &[2, 1],
                src,
                diff_dst: src,
                mean: &[1.5_f32],
                variance: &[0.25],
                gamma: None,
                beta: None,
                mask: None,
            }))
            .unwrap_err()
            .to_string(),
        }
    });
    for error in errors {
        assert!(
            error.contains("forward 1 of f32, f32, f32 on rank 0; backward 1"),
            "{error}"
        );
    }
}

#[test]
fn few_elements_and_none() {
    let subject = &subjects()[0];
    // None at all: statistics are 0, and running ones stay.
    on_ranks(2, |rank| {
        let mut layer = layer(rank, subject, 1e-5, &[0, 1]).unwrap();
        let mut running = [3.0, 4.0];
        let output = forward(&mut layer, &[], Some(&mut running)).unwrap();
        assert_eq!((output.mean, output.variance), (vec![0.0], vec![0.0]));
        assert_eq!(running, [3.0, 4.0]);
    });
    // One on one rank is one too few for the unbiased variance; one on each are enough.
    on_ranks(2, |rank| {
        let own = rank.rank;
        let mut layer = layer(rank, subject, 1e-5, &[0, 1]).unwrap();
        let mut running = [3.0, 4.0];
        let src: &[f32] = if own == 0 { &[7.0] } else { &[] };
        let error = forward(&mut layer, src, Some(&mut running)).unwrap_err();
        assert!(error.to_string().contains("two elements"), "{error}");
        assert_eq!(running, [3.0, 4.0]);
        let output = forward(&mut layer, &[own as f32 * 2.0], Some(&mut running)).unwrap();
        assert_eq!((output.mean, output.variance), (vec![1.0], vec![1.0]));
        assert_eq!(running, [2.5, 3.5]);
    });
}

#[test]
fn shapes_are_those_of_the_layer() {
    let subject = &subjects()[0];
    let error = on_ranks(1, |rank| {
        let mut layer = layer(rank, subject, 1e-5, &[2, 3]).unwrap();
        forward(&mut layer, &[1.0, 2.0], None).unwrap_err()
    });
    let error = error[0].to_string();
    assert!(
        error.contains("expected samples of shape [3], got [2, 1]"),
        "{error}"
    );
    for shape in [&[3][..], &[1; 9]] {
        let errors = on_ranks(1, |rank| layer(rank, subject, 1e-5, shape).unwrap_err());
        assert!(errors[0].to_string().contains("rank"), "{}", errors[0]);
    }
}

/// Every norm and pass by `run_into`: what ranks have together is what one process has, but for rounding.
#[test]
fn any_operation() {
    /// Samples of each rank.
    const SAMPLES: [usize; 3] = [2, 0, 7];
    let gpu = &subjects()[0].gpu;
    let of = |norm: &Norm, pass: Pass| {
        Operation::new(norm.clone(), pass, &[9, 4, 8], DType::F32)
            .with_params(true, !matches!(norm, Norm::Rms { .. }))
    };
    let format = DataFormat::Ncx;
    let (layer, rms) = (Norm::Layer { begin_axis: 1 }, Norm::Rms { begin_axis: -1 });
    let followed = [
        Norm::Batch(Channels::Axis(format)),
        Norm::Group { groups: 2, format },
        Norm::Instance { format },
    ];
    let mut operations = vec![];
    for norm in [&followed[..], &[layer, rms]].concat() {
        let forward = Forward::default();
        operations.push(of(&norm, Backward::default().into()));
        if !followed.contains(&norm) {
            operations.push(of(&norm, forward.into()));
            continue;
        }
        operations.push(of(&norm, Pass::Inference));
        let forward = match norm {
            Norm::Batch(_) => forward.with_running(UPDATE),
            _ => forward,
        };
        let epilogue = Epilogue::new(Residual::After, Activation::Relu);
        for pass in [forward.into(), Backward::default().into()] {
            operations.push(of(&norm, pass).with_epilogue(epilogue));
        }
    }
    for operation in &operations {
        let tensors = operation.tensors().unwrap();
        let mut random = Random::new(5);
        let inputs: Vec<(TensorUse, Vec<u8>)> = tensors
            .into_iter()
            .map(|used| {
                let len = used.len() as usize;
                let bytes: Vec<u8> = match used.tensor {
                    _ if !used.access.reads() => vec![0; 4 * len],
                    Tensor::Mask => (0..4 * len).map(|_| random.bits() as u8).collect(),
                    Tensor::Variance | Tensor::MeanSquare => {
                        bytemuck::cast_slice(&random.vec::<f32>(len, 0.25, 1.0)).to_vec()
                    }
                    _ => bytemuck::cast_slice(&random.vec::<f32>(len, 1.0, 0.1)).to_vec(),
                };
                (used, bytes)
            })
            .collect();
        // What a rank has of a tensor: of those of samples, which lie one after another, its part.
        let part = |used: &TensorUse, samples: &Range<usize>| match used.ranks {
            Ranks::Split => {
                let each = used.bytes() as usize / 9;
                samples.start * each..samples.end * each
            }
            _ => 0..used.bytes() as usize,
        };
        let run = |ranks: Threads, samples: Range<usize>| {
            let mut own = operation.clone();
            own.shape[0] = samples.len();
            let of_ranks = inputs.iter().map(|(used, bytes)| {
                let bytes = bytes[part(used, &samples)].to_vec();
                (used, bytes)
            });
            let (mut written, read): (Vec<_>, Vec<_>) =
                of_ranks.partition(|(used, _)| used.access.writes());
            let given: Vec<_> = read.iter().map(|(used, b)| (used.tensor, &**b)).collect();
            let mut taken: Vec<(Tensor, &mut [u8])> = vec![];
            taken.extend(written.iter_mut().map(|(used, b)| (used.tensor, &mut **b)));
            block_on(run_into(&own, gpu, ranks, &given, &mut taken)).unwrap();
            written
        };
        let whole = on_ranks(1, |rank| run(rank, 0..9)).remove(0);
        let starts = [0, SAMPLES[0], SAMPLES[0] + SAMPLES[1]];
        let of_ranks = on_ranks(3, |rank| {
            let start = starts[rank.rank];
            let end = start + SAMPLES[rank.rank];
            run(rank, start..end)
        });
        for (rank, results) in of_ranks.iter().enumerate() {
            let samples = starts[rank]..starts[rank] + SAMPLES[rank];
            for ((used, got), (_, want)) in results.iter().zip(&whole) {
                let want = &want[part(used, &samples)];
                let what = format!("{operation}: {:?} on {rank}", used.tensor);
                if used.tensor == Tensor::Mask {
                    assert_eq!(got, want, "{what}");
                    continue;
                }
                let [got, want] = [got, want].map(bytemuck::pod_collect_to_vec::<u8, f32>);
                assert_eq!(got.len(), want.len(), "{what}");
                for (got, want) in got.iter().zip(&want) {
                    assert!((got - want).abs() <= 1e-5 * (1.0 + want.abs()), "{what}");
                }
            }
        }
    }
    // What ranks cannot share.
    let rows = of(&Norm::Rms { begin_axis: 0 }, Forward::default().into());
    let broadcast = Norm::Batch(Channels::Broadcast(vec![1, 4, 1]));
    let broadcast = of(&broadcast, Pass::Inference);
    for (operation, argument) in [(rows, "begin_norm_axis"), (broadcast, "data_format")] {
        let errors = on_ranks(2, |rank| {
            block_on(run_into(&operation, gpu, rank, &[], &mut [])).unwrap_err()
        });
        assert!(errors[0].to_string().contains(argument), "{}", errors[0]);
    }
}
