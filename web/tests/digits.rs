//! The kernels and the network that learns digits, against plain Rust, and the network's training.

mod plain;

use plain::gradient;
use wgpu_norm::wgpu::Buffer;
use wgpu_norm::{Error, GpuContext, bytemuck};
use wgpu_norm_page::digits::kernel::{Command, Kernels, record};
use wgpu_norm_page::digits::layers::{Bias, Convolution, Dense, Shape, cross_entropy};
use wgpu_norm_page::digits::network::{CLASSES, FIRST, Network, SECOND, Weights};
use wgpu_norm_page::digits::param::{Param, upload, zeros};
use wgpu_norm_page::digits::{Settings, Training};
use wgpu_norm_verify::Random;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Sizes of the network, and sizes that nothing divides.
const SHAPES: [Shape; 4] = [FIRST, SECOND, odd(1), odd(2)];

const fn odd(stride: usize) -> Shape {
    Shape {
        src_channels: 3,
        src_side: 5,
        dst_channels: 2,
        stride,
    }
}

const IMAGES: usize = 3;

#[test]
fn convolutions() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        let random = &mut Random::new(1);
        for shape in SHAPES {
            let src_len = IMAGES * shape.src_channels * shape.src_side * shape.src_side;
            let src = Tensor::random(&kernels, src_len, random)?;
            let weight = Tensor::random(&kernels, shape.dst_channels * shape.terms(), random)?;
            let diff_dst = Tensor::random(&kernels, IMAGES * shape.dst_len(), random)?;
            let layer = Convolution::new(&kernels, shape, &weight.f32s())?;

            let dst = zeros(&kernels.gpu, "dst", IMAGES * shape.dst_len())?;
            let got = run(&kernels, layer.forward(&kernels, &src.buffer, &dst), &dst).await?;
            let forward = |of: Part| plain::convolution(shape, &of(&src), &of(&weight));
            check("dst", &got, shape.terms(), forward);

            let diff_src = zeros(&kernels.gpu, "diff_src", src_len)?;
            let command = layer.src_gradient(&kernels, &diff_dst.buffer, &diff_src);
            let got = run(&kernels, command, &diff_src).await?;
            check("diff_src", &got, shape.dst_channels * 9, |of| {
                let map = |src: &[f64]| plain::convolution(shape, src, &of(&weight));
                gradient(src_len, &of(&diff_dst), map)
            });

            let command = layer.weight_gradient(&kernels, &src.buffer, &diff_dst.buffer);
            let got = run(&kernels, command, &layer.weight.gradient).await?;
            check("diff_weight", &got, IMAGES * shape.dst_len(), |of| {
                let map = |weight: &[f64]| plain::convolution(shape, &of(&src), weight);
                gradient(weight.values.len(), &of(&diff_dst), map)
            });
        }
        Ok(())
    })
}

#[test]
fn biases() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        let random = &mut Random::new(2);
        for (channels, side) in [(8, 8), (16, 4), (3, 5)] {
            let area = side * side;
            let len = IMAGES * channels * area;
            let src = Tensor::random(&kernels, len, random)?;
            let bias = Tensor::random(&kernels, channels, random)?;
            let diff_dst = Tensor::random(&kernels, len, random)?;
            let layer = Bias::new(&kernels, channels, side)?;
            set(&kernels, &layer.bias, &bias.f32s());

            let dst = zeros(&kernels.gpu, "dst", len)?;
            let got = run(&kernels, layer.forward(&kernels, &src.buffer, &dst), &dst).await?;
            check("dst", &got, 2, |of| {
                plain::bias_relu(area, &of(&src), &of(&bias))
            });

            let diff_src = zeros(&kernels.gpu, "diff_src", len)?;
            let command = layer.gradient(&kernels, &dst, &diff_dst.buffer, &diff_src);
            let got = run(&kernels, command, &diff_src).await?;
            let passed = |of: Part| -> Vec<f64> {
                let dst = plain::bias_relu(area, &src.values, &bias.values);
                let pairs = dst.iter().zip(of(&diff_dst));
                let passed = pairs.map(|(&dst, diff)| if dst > 0.0 { diff } else { 0.0 });
                passed.collect()
            };
            check("diff_src", &got, 0, passed);

            let got = read(&kernels, &layer.bias.gradient).await?;
            check("diff_bias", &got, IMAGES * area, |of| {
                let mut sums = vec![0.0; channels];
                for (at, diff) in passed(of).into_iter().enumerate() {
                    sums[at / area % channels] += diff;
                }
                sums
            });
        }
        Ok(())
    })
}

#[test]
fn dense() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        let random = &mut Random::new(3);
        for (inputs, outputs) in [(SECOND.dst_len(), CLASSES), (7, 3)] {
            let src = Tensor::random(&kernels, IMAGES * inputs, random)?;
            let weight = Tensor::random(&kernels, outputs * inputs, random)?;
            let bias = Tensor::random(&kernels, outputs, random)?;
            let diff_dst = Tensor::random(&kernels, IMAGES * outputs, random)?;
            let layer = Dense::new(&kernels, outputs, &weight.f32s())?;
            set(&kernels, &layer.bias, &bias.f32s());

            let dst = zeros(&kernels.gpu, "dst", IMAGES * outputs)?;
            let got = run(&kernels, layer.forward(&kernels, &src.buffer, &dst), &dst).await?;
            check("dst", &got, inputs + 1, |of| {
                plain::dense(&of(&src), &of(&weight), &of(&bias))
            });

            let diff_src = zeros(&kernels.gpu, "diff_src", IMAGES * inputs)?;
            let command = layer.src_gradient(&kernels, &diff_dst.buffer, &diff_src);
            let got = run(&kernels, command, &diff_src).await?;
            let zero = vec![0.0; outputs];
            check("diff_src", &got, outputs, |of| {
                let map = |src: &[f64]| plain::dense(src, &of(&weight), &zero);
                gradient(IMAGES * inputs, &of(&diff_dst), map)
            });

            let command = layer.weight_gradient(&kernels, &src.buffer, &diff_dst.buffer);
            let got = run(&kernels, command, &layer.weight.gradient).await?;
            check("diff_weight", &got, IMAGES, |of| {
                let map = |weight: &[f64]| plain::dense(&of(&src), weight, &zero);
                gradient(outputs * inputs, &of(&diff_dst), map)
            });
            let got = read(&kernels, &layer.bias.gradient).await?;
            check("diff_bias", &got, IMAGES, |of| {
                let zeros = vec![0.0; outputs * inputs];
                let map = |bias: &[f64]| plain::dense(&src.values, &zeros, bias);
                gradient(outputs, &of(&diff_dst), map)
            });
        }
        Ok(())
    })
}

/// WGSL allows exp an error of 3 + 2 · |x| units in the last place, and x is between −16 and 0 here: 35 units, 4e-6.
/// Far from 1, log has 3 units. The loss is a difference of logits of up to 8.
#[test]
fn cross_entropies() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        let gpu = &kernels.gpu;
        let images = 100;
        let logits: Vec<f32> = Random::new(4).vec(images * CLASSES, 8.0, 0.0);
        let labels: Vec<u32> = (0..images as u32).map(|n| n * 7 % 10).collect();
        let src = upload(gpu, "logits", &logits)?;
        let label = gpu.upload("labels", bytemuck::cast_slice(&labels))?;
        let loss = zeros(gpu, "loss", images)?;
        let diff = zeros(gpu, "diff_logits", images * CLASSES)?;
        let command = cross_entropy(&kernels, &src, &label, &loss, &diff);

        let got = run(&kernels, command, &loss).await?;
        let logits: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
        for (got, want) in got.iter().zip(plain::cross_entropy(&logits, &labels)) {
            let error = (f64::from(*got) - want).abs();
            assert!(error < 2e-5, "loss: {got}, but {want}");
        }
        let got = read(&kernels, &diff).await?;
        for (n, (logits, got)) in logits.chunks(CLASSES).zip(got.chunks(CLASSES)).enumerate() {
            let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
            for (class, (logit, got)) in logits.iter().zip(got).enumerate() {
                let wanted = f64::from(u8::from(class as u32 == labels[n]));
                let want = (logit.exp() / total - wanted) / images as f64;
                let error = (f64::from(*got) - want).abs() * images as f64;
                assert!(error < 1e-5, "diff_logits: {got}, but {want}");
            }
        }
        Ok(())
    })
}

#[test]
fn momentum() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        let random = &mut Random::new(5);
        let [value, first, second]: [Vec<f32>; 3] = [(); 3].map(|()| random.vec(100, 1.0, 0.0));
        let param = Param::new(&kernels.gpu, "param", &value)?;
        let rate = upload(&kernels.gpu, "rate", &[0.25])?;
        let queue = kernels.gpu.queue();
        queue.write_buffer(&param.gradient, 0, bytemuck::cast_slice(&first));
        run(&kernels, param.learn(&kernels, &rate), &param.value).await?;
        queue.write_buffer(&param.gradient, 0, bytemuck::cast_slice(&second));
        let got = run(&kernels, param.learn(&kernels, &rate), &param.value).await?;
        for (at, got) in got.iter().enumerate() {
            let velocity = 0.9 * first[at] + second[at];
            let want = value[at] - 0.25 * first[at] - 0.25 * velocity;
            // A handful of roundings of numbers below 2.
            assert!((got - want).abs() < 1e-6, "{got}, but {want}");
        }
        Ok(())
    })
}

/// All of backpropagation against differences of the loss in float64.
#[test]
fn gradients_of_networks() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        for norms in [true, false] {
            let network = network(&kernels, norms).await?;
            let Trained {
                params,
                images,
                labels,
                loss,
                ..
            } = &network;
            let want = plain::loss(norms, params, &images.values, labels);
            assert!(
                (loss - want).abs() < 1e-5 * want,
                "loss: {loss}, but {want}"
            );

            for (index, param) in network.network.params().into_iter().enumerate() {
                let got = read(&kernels, &param.gradient).await?;
                let mut largest = 0.0_f64;
                let mut error = 0.0_f64;
                // A part of the elements of large parameters.
                for at in (0..got.len()).step_by(1 + got.len() / 100) {
                    let loss_near = |change| {
                        let mut params = params.clone();
                        params[index][at] += change;
                        plain::loss(norms, &params, &images.values, labels)
                    };
                    let want = (loss_near(1e-6) - loss_near(-1e-6)) / 2e-6;
                    largest = largest.max(want.abs());
                    error = error.max((f64::from(got[at]) - want).abs());
                }
                assert!(largest > 1e-4, "parameter {index} does not matter");
                // On a software driver the largest error is 7e-7 of the largest element. Other drivers may add up
                // in other orders.
                let error = error / largest;
                assert!(
                    error < 1e-5,
                    "norms {norms}, parameter {index}: {error:.1e}"
                );
            }
        }
        Ok(())
    })
}

/// After one batch, running statistics are nine tenths of the initial ones and a tenth of the batch's.
#[test]
fn inference() -> Result {
    pollster::block_on(async {
        let kernels = kernels().await?;
        for norms in [true, false] {
            let trained = network(&kernels, norms).await?;
            let Trained { params, images, .. } = &trained;
            let (_, batch) = plain::logits(norms, None, params, &images.values);
            let mut running = batch;
            for (statistics, shape) in running.iter_mut().zip([FIRST, SECOND]) {
                let count = (BATCH * shape.dst_side() * shape.dst_side()) as f64;
                for [mean, variance] in statistics {
                    *mean *= 0.1;
                    *variance = 0.9 + 0.1 * *variance * count / (count - 1.0);
                }
            }
            let inference = trained.network.inference(&kernels, &images.buffer)?;
            let record = |encoder: &mut _| record(encoder, &inference.commands);
            kernels.gpu.submit_and_read(record, &[]).await?;
            let got = read(&kernels, &inference.result).await?;
            let (want, _) = plain::logits(norms, Some(&running), params, &images.values);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(want) {
                // Rounding in three layers of logits of about 1.
                assert!((f64::from(*got) - want).abs() < 1e-5, "{got}, but {want}");
            }
        }
        Ok(())
    })
}

#[test]
fn learns() -> Result {
    pollster::block_on(async {
        let gpu = GpuContext::new().await?;
        let mut training = Training::new(&gpu, Settings::default())?;
        let before = training.accuracy().await?;
        assert!(before.iter().all(|percent| *percent < 40.0), "{before:?}");
        let mut step = training.step().await?;
        // About the logarithm of the number of classes, as a network that knows nothing has it.
        assert!(
            step.loss.iter().all(|loss| (1.0..5.0).contains(loss)),
            "{step:?}"
        );
        while step.epoch < 5.0 {
            step = training.step().await?;
        }
        assert_eq!(step.step, 110);
        let after = training.accuracy().await?;
        println!("{step:?}: {after:?} %");
        assert!(after[0] >= 97.0, "{after:?}");

        // The first image, a zero.
        let bytes = include_bytes!("../../examples/digits/digits.bin");
        let pixels: [f32; 64] = std::array::from_fn(|at| f32::from(bytes[at]) / 16.0);
        for probabilities in training.guess(&pixels).await? {
            let total: f32 = probabilities.iter().sum();
            assert!((total - 1.0).abs() < 1e-5, "{probabilities:?}");
            assert!(probabilities[0] > 0.5, "{probabilities:?}");
        }

        // At a rate of 0 nothing is learnt, except running statistics.
        training.set_rate(0.0);
        training.step().await?;
        assert_eq!(training.accuracy().await?[1], after[1]);
        Ok(())
    })
}

/// What the page shows: norms allow higher rates. Means over seeds, because a training at its limit depends on every
/// rounding. Measured: 97.9 % with norms and 57 % without.
#[test]
fn norms_allow_higher_rates() -> Result {
    pollster::block_on(async {
        let gpu = GpuContext::new().await?;
        let mut means = [0.0; 2];
        for seed in 1..=3 {
            let settings = Settings {
                seed,
                rate: 0.4,
                ..Settings::default()
            };
            let mut training = Training::new(&gpu, settings)?;
            while training.step().await?.epoch < 5.0 {}
            let accuracy = training.accuracy().await?;
            println!("seed {seed}: {accuracy:?} %");
            for (mean, percent) in means.iter_mut().zip(accuracy) {
                *mean += percent / 3.0;
            }
        }
        assert!(means[0] > 94.0 && means[1] < 90.0, "{means:?}");
        Ok(())
    })
}

#[test]
fn divergence_is_no_error() -> Result {
    pollster::block_on(async {
        let gpu = GpuContext::new().await?;
        for rate in [1e9, f32::INFINITY, f32::NAN] {
            let mut training = Training::new(
                &gpu,
                Settings {
                    rate,
                    ..Settings::default()
                },
            )?;
            for _ in 0..5 {
                training.step().await?;
            }
            let step = training.step().await?;
            let accuracy = training.accuracy().await?;
            assert!(
                accuracy.iter().all(|percent| *percent < 40.0),
                "{accuracy:?}"
            );
            let guesses = training.guess(&[0.5; 64]).await?;
            if !rate.is_finite() {
                assert!(step.loss.iter().all(|loss| loss.is_nan()), "{step:?}");
                assert!(
                    guesses.as_flattened().iter().all(|p| p.is_nan()),
                    "{guesses:?}"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn the_seed_determines_a_training() -> Result {
    pollster::block_on(async {
        let gpu = GpuContext::new().await?;
        for batch in [8, 256] {
            let settings = Settings {
                batch,
                ..Settings::default()
            };
            let mut trainings = [
                Training::new(&gpu, settings)?,
                Training::new(&gpu, settings)?,
            ];
            for _ in 0..7 {
                let steps = [trainings[0].step().await?, trainings[1].step().await?];
                assert_eq!(steps[0], steps[1]);
            }
        }
        Ok(())
    })
}

#[test]
fn wrong_batches() -> Result {
    pollster::block_on(async {
        let gpu = GpuContext::new().await?;
        for batch in [0, 7, 257, usize::MAX] {
            let settings = Settings {
                batch,
                ..Settings::default()
            };
            let error = Training::new(&gpu, settings).err();
            assert!(matches!(error, Some(Error::Argument { .. })));
        }
        Ok(())
    })
}

const BATCH: usize = 8;

/// A network after a step at a rate of 0: it has gradients and running statistics, but its parameters as before.
struct Trained {
    network: Network,
    params: Vec<Vec<f64>>,
    images: Tensor,
    labels: Vec<u32>,
    loss: f64,
}

async fn network(kernels: &Kernels, norms: bool) -> Result<Trained> {
    let random = &mut Random::new(6);
    let images = Tensor::random(kernels, BATCH * 64, random)?;
    let labels: Vec<u32> = (0..BATCH as u32).map(|n| n * 3 % 10).collect();
    let network = Network::new(kernels, &Weights::random(random), norms)?;
    // Away from gamma 1, beta 0 and bias 0.
    let mut params = Vec::new();
    for param in network.params() {
        let values = read(kernels, &param.value).await?;
        let shift: Vec<f32> = random.vec(values.len(), 0.2, 0.0);
        let values: Vec<f32> = values.iter().zip(shift).map(|(a, b)| a + b).collect();
        set(kernels, param, &values);
        params.push(values.iter().map(|&value| value.into()).collect());
    }
    let rate = upload(&kernels.gpu, "rate", &[0.0])?;
    let label = kernels
        .gpu
        .upload("labels", bytemuck::cast_slice(&labels))?;
    let step = network.training(kernels, &rate, &images.buffer, &label)?;
    let record = |encoder: &mut _| record(encoder, &step.commands);
    kernels.gpu.submit_and_read(record, &[]).await?;
    let losses = read(kernels, &step.result).await?;
    let loss = losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / BATCH as f64;
    Ok(Trained {
        network,
        params,
        images,
        labels,
        loss,
    })
}

/// Numbers on both sides.
struct Tensor {
    values: Vec<f64>,
    buffer: Buffer,
}

impl Tensor {
    /// Numbers between −1 and 1 that f32 represents.
    fn random(kernels: &Kernels, len: usize, random: &mut Random) -> Result<Self> {
        let values: Vec<f32> = random.vec(len, 1.0, 0.0);
        Ok(Self {
            buffer: upload(&kernels.gpu, "tensor", &values)?,
            values: values.iter().map(|&value| value.into()).collect(),
        })
    }

    fn f32s(&self) -> Vec<f32> {
        self.values.iter().map(|&value| value as f32).collect()
    }
}

/// A tensor's values, or their absolute values.
type Part<'a> = &'a dyn Fn(&Tensor) -> Vec<f64>;

/// Compares sums of products with plain Rust. A sum of so many products, in any order, has an error of at most that
/// many roundings, of 2⁻²⁴ each, of the sum of the products' absolute values, which is what the same function computes
/// from absolute values. Twice that is allowed, because each product is rounded as well.
fn check(what: &str, got: &[f32], terms: usize, function: impl Fn(Part) -> Vec<f64>) {
    let want = function(&|tensor| tensor.values.clone());
    let scale = function(&|tensor| tensor.values.iter().map(|value| value.abs()).collect());
    assert_eq!(got.len(), want.len(), "{what}");
    for ((got, want), scale) in got.iter().zip(want).zip(scale) {
        let tolerance = terms as f64 * 2.0_f64.powi(-23) * scale;
        let error = (f64::from(*got) - want).abs();
        assert!(
            error <= tolerance,
            "{what}: {got}, but {want} ± {tolerance:.1e}"
        );
    }
}

async fn kernels() -> Result<Kernels> {
    Ok(Kernels::new(&GpuContext::new().await?))
}

fn set(kernels: &Kernels, param: &Param, values: &[f32]) {
    let bytes = bytemuck::cast_slice(values);
    kernels.gpu.queue().write_buffer(&param.value, 0, bytes);
}

async fn read(kernels: &Kernels, buffer: &Buffer) -> Result<Vec<f32>> {
    let read = kernels
        .gpu
        .submit_and_read(|_| {}, std::slice::from_ref(buffer))
        .await?;
    Ok(bytemuck::pod_collect_to_vec(&read[0]))
}

/// Runs a command, and reads a buffer.
async fn run(kernels: &Kernels, command: Command, result: &Buffer) -> Result<Vec<f32>> {
    let record = |encoder: &mut _| record(encoder, [&command]);
    kernels.gpu.submit_and_read(record, &[]).await?;
    read(kernels, result).await
}
