//! Tensors in pieces: the same bits as in one piece, within the budget, and what is refused.

use crate::common::data::Random;
use crate::common::{Subject, subjects, takes_all};
use pollster::block_on;
use std::collections::HashMap;
use wgpu_norm::Tensor;
use wgpu_norm::export::Plan;
use wgpu_norm::half::{bf16, f16};
use wgpu_norm::stream::{Storage, Stream};
use wgpu_norm::{
    Activation, Algorithm, BackwardOperands, BatchNormForwardOperands, BatchNormOptions,
    BufferRange, DType, DTypes, DataFormat, Element, Error, GroupNormForwardOperands,
    GroupNormOptions, InferenceOperands, LayerNormForwardOperands, LayerNormOptions, Profile,
    RmsNormForwardOperands, RmsNormOptions, RunningUpdate, RunningVariance, Statistics, bytemuck,
};

type Bytes = HashMap<Tensor, Vec<u8>>;

/// Tensors in host memory. What is written begins as ones that no result has.
struct Memory {
    tensors: Bytes,
    /// Bytes that were asked for at once, at most.
    most: usize,
}

impl Storage for Memory {
    type Error = Error;

    async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.most = self.most.max(to.len());
        to.copy_from_slice(&self.tensors[&tensor][offset as usize..][..to.len()]);
        Ok(())
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Error> {
        let bytes = self.tensors.get_mut(&tensor).unwrap();
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

fn bytes_of<T: Element>(random: &mut Random, bytes: u64) -> Vec<u8> {
    let values: Vec<T> = random.vec(bytes as usize / size_of::<T>(), 1.0, 0.25);
    bytemuck::cast_slice(&values).to_vec()
}

/// Random tensors for a plan; statistics are above 0.
fn tensors(plan: &Plan, types: DTypes) -> Bytes {
    let mut random = Random::new(7);
    let tensors = plan.tensors().into_iter();
    let tensors = tensors.filter(|used| used.tensor != Tensor::Workspace);
    tensors
        .map(|used| {
            let dtype = match used.tensor {
                Tensor::Gamma | Tensor::Beta => types.params,
                Tensor::Src | Tensor::DiffDst | Tensor::Residual => types.data,
                _ => types.statistics,
            };
            let mut bytes = match (used.tensor, dtype) {
                (Tensor::Mask, _) => (0..used.bytes).map(|i| (i * 37) as u8).collect(),
                (_, DType::F16) => bytes_of::<f16>(&mut random, used.bytes),
                (_, DType::Bf16) => bytes_of::<bf16>(&mut random, used.bytes),
                (_, DType::F64) => bytes_of::<f64>(&mut random, used.bytes),
                _ => bytes_of::<f32>(&mut random, used.bytes),
            };
            if let (Tensor::Variance | Tensor::MeanSquare | Tensor::RunningVariance, 2 | 4) =
                (used.tensor, dtype.size())
            {
                let size = dtype.size() as usize;
                bytes
                    .chunks_mut(size)
                    .for_each(|value| value[size - 1] &= 0x7f);
            }
            bytes.resize(used.bytes as usize, 0);
            if matches!(used.tensor, Tensor::RunningMean | Tensor::RunningVariance) {
                // Of an odd number of 16 bits, what fills the last word is written as 0.
                bytes.iter_mut().rev().take(2).for_each(|byte| *byte = 0);
            }
            (used.tensor, bytes)
        })
        .collect()
}

/// The results in one piece.
fn whole(subject: &Subject, plan: &Plan, tensors: &Bytes) -> Bytes {
    let uses = plan.tensors();
    let buffers: Vec<_> = uses
        .iter()
        .map(|used| {
            let bytes = tensors.get(&used.tensor).map_or(&[][..], Vec::as_slice);
            let size = used.padded_bytes.max(32).next_multiple_of(32);
            (used.tensor, subject.buffer(size, bytes))
        })
        .collect();
    let ranges: Vec<_> = buffers
        .iter()
        .map(|(t, b)| (*t, BufferRange::from(b)))
        .collect();
    let bound = plan.bind(&subject.gpu, &ranges).unwrap();
    let mut encoder = subject
        .gpu
        .device()
        .create_command_encoder(&Default::default());
    bound.record(&mut encoder);
    subject.gpu.queue().submit([encoder.finish()]);
    let written = uses.iter().zip(&buffers).filter(|(used, _)| used.written);
    written
        .filter(|(used, _)| used.tensor != Tensor::Workspace)
        .map(|(used, (_, buffer))| {
            let mut bytes = subject.read(buffer);
            bytes.truncate(used.bytes as usize);
            (used.tensor, bytes)
        })
        .collect()
}

/// Any executor may move it to another thread.
fn sendable<F: Future + Send>(future: F) -> F {
    future
}

/// The smallest budget, and what is planned within it.
fn smallest(
    subject: &Subject,
    plan: &dyn Fn(&Profile) -> Result<Plan, Error>,
) -> Result<Stream, Error> {
    let budget = match Stream::new(&subject.gpu, 0, plan) {
        Err(Error::Budget { expected, .. }) => expected,
        refused => {
            let _ = refused?;
            panic!("a stream without memory");
        }
    };
    let stream = Stream::new(&subject.gpu, budget, plan)?;
    assert!(stream.memory() <= budget);
    Ok(stream)
}

/// The results of the smallest stream beside those in one piece: the same bits, but for sums that cutting reorders.
fn check(
    subject: &Subject,
    what: &str,
    (types, algorithm): (DTypes, Option<Algorithm>),
    pieces: usize,
    plan: &dyn Fn(&Profile) -> Result<Plan, Error>,
) {
    let what = format!("{what} {types:?} {algorithm:?} on {}", subject.name);
    if !subject.gpu.supports(types.data) {
        println!("skipped {what}: no {}", types.data);
        return;
    }
    let subject = subject.with_profile("short windows", |profile| {
        profile.window_unit = 256;
        profile.algorithm = algorithm;
    });
    let one = plan(subject.gpu.profile()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let tensors = tensors(&one, types);
    let want = whole(&subject, &one, &tensors);
    let stream = smallest(&subject, plan).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        stream.pieces() >= pieces,
        "{what}: {} pieces",
        stream.pieces()
    );
    let mut memory = Memory { tensors, most: 0 };
    for tensor in want.keys() {
        let is_read = matches!(tensor, Tensor::RunningMean | Tensor::RunningVariance);
        if !is_read {
            let bytes = memory.tensors.get_mut(tensor).unwrap();
            bytes.fill(0xee);
            // Of an odd number of 16 bits, what fills the last word.
            bytes.iter_mut().rev().take(2).for_each(|byte| *byte = 0);
        }
    }
    block_on(sendable(stream.run(&mut memory))).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(memory.most <= 1 << 20);
    let reordered = algorithm == Some(Algorithm::RowsReadTwice);
    for (tensor, want) in &want {
        let got = &memory.tensors[tensor];
        if reordered && types.data == DType::F32 {
            let floats = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
            let (got, want) = (floats(got), floats(want));
            let largest = want
                .iter()
                .fold(1.0_f32, |most, value| most.max(value.abs()));
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= 1e-5 * largest, "{what}: {tensor:?}");
            }
            continue;
        }
        let first = got.iter().zip(want).position(|(got, want)| got != want);
        assert_eq!(first, None, "{what}: the byte of {tensor:?} that differs");
    }
}

const F32: (DType, DType) = (DType::F32, DType::F32);

fn all_types() -> Vec<DTypes> {
    let types = [
        F32,
        (DType::F16, DType::F32),
        (DType::Bf16, DType::Bf16),
        (DType::F64, DType::F64),
    ];
    let taken = if takes_all() { types.len() } else { 2 };
    types[..taken].iter().map(|&types| types.into()).collect()
}

#[test]
fn batch_norm_gradient() {
    let shapes: [(&[usize], DataFormat, Algorithm, usize); 5] = [
        (&[9, 5, 31, 7], DataFormat::Ncx, Algorithm::ChannelsFirst, 8),
        (&[3, 2, 5003], DataFormat::Ncx, Algorithm::ChannelsFirst, 20),
        (&[400, 12], DataFormat::Nxc, Algorithm::ChannelsLast, 8),
        (&[7, 301, 13], DataFormat::Nxc, Algorithm::ChannelsLast, 8),
        (&[5, 8, 64], DataFormat::Ncx, Algorithm::ChannelsFirst, 4),
    ];
    for subject in subjects() {
        for types in all_types() {
            for (shape, data_format, algorithm, pieces) in shapes {
                for activation in [Activation::None, Activation::Relu] {
                    let options = BatchNormOptions {
                        data_format,
                        activation,
                        ..BatchNormOptions::new(1e-3)
                    };
                    let operands = BackwardOperands {
                        gamma: true,
                        beta: false,
                        mask: activation == Activation::Relu,
                    };
                    let of = (types, Some(algorithm));
                    // A mask is cut every 2048 elements at most.
                    let pieces = if operands.mask { 2 } else { pieces };
                    check(subject, &format!("{shape:?}"), of, pieces, &|profile| {
                        Ok(options
                            .plan_backward(profile, shape, types, operands)?
                            .into())
                    });
                }
            }
        }
    }
}

#[test]
fn batch_norm_forward() {
    for subject in subjects() {
        for types in all_types() {
            for (shape, data_format, algorithm) in [
                (
                    &[9, 5, 31, 7][..],
                    DataFormat::Ncx,
                    Algorithm::ChannelsFirst,
                ),
                (&[7, 301, 13], DataFormat::Nxc, Algorithm::ChannelsLast),
            ] {
                for activation in [Activation::None, Activation::Relu] {
                    let options = BatchNormOptions {
                        data_format,
                        activation,
                        ..BatchNormOptions::new(1e-3)
                    };
                    let operands = BatchNormForwardOperands {
                        gamma: true,
                        beta: true,
                        residual: activation == Activation::Relu,
                        running: Some(RunningUpdate {
                            weight: 0.25,
                            variance: RunningVariance::Unbiased,
                        }),
                        ..Default::default()
                    };
                    let of = (types, Some(algorithm));
                    check(subject, &format!("forward {shape:?}"), of, 4, &|profile| {
                        Ok(options
                            .plan_forward(profile, shape, types, operands)?
                            .into())
                    });
                    let operands = InferenceOperands {
                        gamma: true,
                        beta: true,
                        residual: false,
                    };
                    check(
                        subject,
                        &format!("inference {shape:?}"),
                        of,
                        4,
                        &|profile| {
                            Ok(options
                                .plan_inference(profile, shape, types, operands)?
                                .into())
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn rows() {
    for subject in subjects() {
        for types in all_types() {
            let layer = LayerNormOptions::default();
            let shape = &[301, 66][..];
            let of = (types, Some(Algorithm::RowsInRegisters));
            check(subject, "layer norm gradient", of, 4, &|profile| {
                Ok(layer.plan_backward(profile, shape, types)?.into())
            });
            let operands = LayerNormForwardOperands {
                residual: true,
                beta: true,
                keep_statistics: true,
            };
            check(subject, "layer norm", of, 4, &|profile| {
                Ok(layer.plan_forward(profile, shape, types, operands)?.into())
            });
            let rms = RmsNormOptions::default();
            check(subject, "RMS norm gradient", of, 4, &|profile| {
                Ok(rms.plan_backward(profile, shape, types, true)?.into())
            });
            let operands = RmsNormForwardOperands {
                residual: false,
                gamma: true,
                keep_statistics: true,
            };
            check(subject, "RMS norm", of, 4, &|profile| {
                Ok(rms.plan_forward(profile, shape, types, operands)?.into())
            });
        }
    }
}

#[test]
fn rows_that_are_read_twice() {
    let layer = LayerNormOptions::default();
    let types = DTypes::from(F32);
    let of = (types, Some(Algorithm::RowsReadTwice));
    for subject in subjects() {
        for shape in [&[301, 66][..], &[40, 2003], &[12, 5000]] {
            let what = format!("layer norm {shape:?}");
            check(subject, &what, of, 2, &|profile| {
                Ok(layer.plan_backward(profile, shape, types)?.into())
            });
            check(subject, &what, of, 2, &|profile| {
                let operands = LayerNormForwardOperands {
                    residual: true,
                    beta: true,
                    keep_statistics: true,
                };
                Ok(layer.plan_forward(profile, shape, types, operands)?.into())
            });
        }
    }
}

#[test]
fn constant_statistics() {
    let types = DTypes::from(F32);
    for subject in subjects() {
        for (data_format, algorithm) in [
            (DataFormat::Ncx, Algorithm::ChannelsFirst),
            (DataFormat::Nxc, Algorithm::ChannelsLast),
        ] {
            let options = BatchNormOptions {
                data_format,
                statistics: Through::Constant,
                ..BatchNormOptions::new(1e-3)
            };
            let of = (types, Some(algorithm));
            check(subject, "constant", of, 4, &|profile| {
                Ok(options
                    .plan_backward(profile, &[9, 12, 40], types, true)?
                    .into())
            });
        }
    }
}

/// What an error asks for is enough, and so is all that is more.
#[test]
fn budgets_that_are_large_enough_are_taken() {
    let subject = &subjects()[0];
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        activation: Activation::Relu,
        ..BatchNormOptions::new(1e-3)
    };
    let operands = BackwardOperands {
        gamma: true,
        beta: false,
        mask: true,
    };
    for shape in [[300, 1000, 1000], [70, 4001, 1007], [500, 64, 128 * 128]] {
        let plan = |profile: &Profile| options.plan_backward(profile, &shape, F32, operands);
        let Err(Error::Budget { expected, .. }) = Stream::new(&subject.gpu, 0, plan) else {
            panic!("a stream without memory");
        };
        for more in (0..64).map(|step| step * 7_654_321) {
            let stream = Stream::new(&subject.gpu, expected + more, plan);
            assert!(stream.unwrap().memory() <= expected + more);
        }
    }
}

#[test]
fn groups() {
    for subject in subjects() {
        for types in all_types() {
            for (data_format, algorithm) in [
                (DataFormat::Ncx, Algorithm::ChannelsFirst),
                (DataFormat::Nxc, Algorithm::General),
            ] {
                let options = GroupNormOptions {
                    data_format,
                    ..GroupNormOptions::new(2)
                };
                let shape: &[usize] = match data_format {
                    DataFormat::Ncx => &[5, 6, 300],
                    DataFormat::Nxc => &[5, 300, 6],
                };
                let of = (types, Some(algorithm));
                let operands = BackwardOperands {
                    gamma: true,
                    beta: false,
                    mask: false,
                };
                check(
                    subject,
                    &format!("group norm gradient {shape:?}"),
                    of,
                    4,
                    &|profile| {
                        Ok(options
                            .plan_backward(profile, shape, types, operands)?
                            .into())
                    },
                );
                let operands = GroupNormForwardOperands {
                    gamma: true,
                    beta: true,
                    residual: false,
                };
                check(
                    subject,
                    &format!("group norm {shape:?}"),
                    of,
                    4,
                    &|profile| {
                        Ok(options
                            .plan_forward(profile, shape, types, operands)?
                            .into())
                    },
                );
            }
        }
    }
}

#[test]
fn small_and_empty_tensors() {
    let options = BatchNormOptions::new(1e-3);
    for subject in subjects() {
        for shape in [&[1, 1][..], &[3, 5], &[0, 4], &[2, 0]] {
            let types = DTypes::from(F32);
            check(
                subject,
                &format!("{shape:?}"),
                (types, None),
                0,
                &|profile| Ok(options.plan_backward(profile, shape, types, true)?.into()),
            );
        }
    }
}

#[test]
fn budgets_that_are_too_small_are_refused() {
    let options = BatchNormOptions {
        data_format: DataFormat::Ncx,
        ..BatchNormOptions::new(1e-3)
    };
    for subject in subjects() {
        let plan =
            |profile: &Profile| options.plan_backward(profile, &[64, 64, 128, 128], F32, true);
        let error = Stream::new(&subject.gpu, 1 << 20, plan).unwrap_err();
        let Error::Budget { expected, got } = error else {
            panic!("{error}");
        };
        assert_eq!(got, 1 << 20);
        assert!((4 << 20..64 << 20).contains(&expected), "{expected}");
        let stream = Stream::new(&subject.gpu, expected, plan).unwrap();
        assert!(stream.memory() <= expected && stream.pieces() > 4);
        // 256 MiB of each tensor; src and diff_dst are read twice.
        assert!((5 << 28..(5 << 28) + (5 << 20)).contains(&stream.traffic()));
        // Parameters that vary along any axes: the tensor cannot be cut.
        let error = Stream::new(&subject.gpu, 64 << 20, |profile| {
            let shape = [64, 64, 128, 64];
            options.plan_backward_broadcast(profile, &shape, &[64, 1, 128, 1], F32, true)
        });
        let error = error.unwrap_err();
        assert!(
            matches!(error, Error::Budget { expected, .. } if expected > 256 << 20),
            "{error}"
        );
    }
}
