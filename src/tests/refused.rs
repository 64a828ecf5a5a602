//! Calls of which a driver refuses one step: each buffer, upload, pipeline, submission and read-back in turn. The call
//! says so, on all ranks, and nothing is left behind: the next call has the bits of the first. A step is made before it
//! is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use crate::context::refused_step;
use crate::stream::{Storage, Stream};
use crate::synchronized::{self, AllGather};
use crate::{
    Activation, Backward, BufferRange, DType, DTypes, DataFormat, Epilogue, Error, Format, Forward,
    GpuContext, Norm, Operation, Profile, Residual, Tensor,
};
use pollster::block_on;
use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::thread;

/// The bytes of tensors by their names.
type Tensors = BTreeMap<Tensor, Vec<u8>>;

fn contexts() -> Vec<GpuContext> {
    let adapters = block_on(crate::adapters(wgpu::Backends::all())).into_iter();
    let adapters = adapters.filter(|adapter| crate::unfit(adapter).is_none());
    let open = |adapter| block_on(GpuContext::from_adapter(&adapter, Default::default())).unwrap();
    adapters.map(open).collect()
}

/// Operations with a plan of every kind.
fn operations() -> Vec<Operation> {
    let backward = Backward::default;
    let mixed = DTypes::from(DType::F16).with_statistics(DType::F16);
    let relu = || Epilogue::new(Residual::None, Activation::Relu);
    let channels = Norm::batch(DataFormat::Nxc);
    let planes = Norm::batch(DataFormat::Ncx);
    vec![
        Operation::new(planes.clone(), backward(), &[3, 5, 70], DType::F32),
        Operation::new(channels.clone(), backward(), &[50, 6], mixed),
        Operation::new(channels, Forward::default(), &[50, 6], DType::Bf16),
        Operation::new(planes.clone(), Forward::default(), &[3, 5, 70], DType::F32)
            .with_epilogue(relu()),
        Operation::new(planes, backward(), &[3, 5, 70], DType::F32).with_epilogue(relu()),
        Operation::new(Norm::layer(-1), backward(), &[9, 33], DType::F32),
        Operation::new(Norm::rms(-1), Forward::default(), &[9, 33], DType::F16),
        Operation::new(Norm::axes(&[1], &[1]), backward(), &[2, 9, 12], DType::F32),
    ]
}

/// Numbers of an element type that are not all alike, above 0 for a variance's sake.
fn numbers(used: &crate::TensorUse) -> Vec<u8> {
    let Format::Elements(dtype) = used.format else {
        return [0x5a, 0xc3, 0x0f, 0x99].repeat(used.elements() as usize);
    };
    let numbers = (0..used.elements()).map(|i| (i * 37 % 101) as f32 / 64.0 + 0.25);
    let bytes = numbers.map(|number| match dtype {
        DType::F16 => half::f16::from_f32(number).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f32(number).to_le_bytes().to_vec(),
        DType::F32 => number.to_le_bytes().to_vec(),
        DType::F64 => f64::from(number).to_le_bytes().to_vec(),
    });
    bytes.flatten().collect()
}

/// Fills the inputs of an operation, passes them and its outputs to `run`, and returns the outputs.
fn fill(
    operation: &Operation,
    run: impl FnOnce(&[(Tensor, &[u8])], &mut [(Tensor, &mut [u8])]) -> Result<(), Error>,
) -> Result<Tensors, Error> {
    let tensors = operation.tensors()?.into_iter();
    let (outputs, inputs): (Vec<_>, Vec<_>) = tensors.partition(|used| used.access.writes());
    let inputs = inputs.iter().map(|used| (used.tensor, numbers(used)));
    let inputs: Tensors = inputs.collect();
    let outputs = outputs.iter().map(|used| (used.tensor, numbers(used)));
    let mut outputs: Tensors = outputs.collect();
    let given: Vec<_> = inputs.iter().map(|(t, bytes)| (*t, &**bytes)).collect();
    let mut taken: Vec<_> = outputs
        .iter_mut()
        .map(|(t, bytes)| (*t, &mut **bytes))
        .collect();
    run(&given, &mut taken)?;
    Ok(outputs)
}

/// Refuses each step of a call in turn.
fn refuse_each(what: &str, call: impl Fn() -> Result<Tensors, Error>) {
    let first = call().unwrap_or_else(|error| panic!("{what}: {error}"));
    for step in 0.. {
        let (result, is_refused) = refused_step::after(step, &call);
        match result {
            Ok(results) if !is_refused => {
                assert!(step > 5, "{what}: only {step} steps");
                assert_eq!(results, first, "{what}");
                return;
            }
            Ok(_) => panic!("{what}: right although step {step} was refused"),
            Err(Error::OutOfMemory { .. } | Error::Gpu { .. }) => {}
            Err(error) => panic!("{what}: step {step}: {error:?}"),
        }
        assert_eq!(call().as_ref(), Ok(&first), "{what}: after step {step}");
    }
}

#[test]
fn arrays() {
    for gpu in contexts() {
        for operation in operations() {
            refuse_each(&operation.to_string(), || {
                fill(&operation, |inputs, outputs| {
                    block_on(operation.run_into(&gpu, inputs, outputs))
                })
            });
        }
    }
}

/// Compiled anew each time.
#[test]
fn pipelines() {
    for gpu in contexts() {
        let operation = &operations()[0];
        refuse_each(&operation.to_string(), || {
            gpu.forget_pipelines();
            fill(operation, |inputs, outputs| {
                block_on(operation.run_into(&gpu, inputs, outputs))
            })
        });
    }
}

#[test]
fn buffers_of_the_caller() {
    for gpu in contexts() {
        for operation in operations() {
            refuse_each(&operation.to_string(), || {
                let plan = operation.plan(gpu.profile())?;
                let mut ranges = vec![];
                for used in operation.tensors()? {
                    let buffer = gpu.upload("tensor", &numbers(&used))?;
                    ranges.push((used, buffer));
                }
                let given: Vec<_> = ranges
                    .iter()
                    .map(|(used, buffer)| (used.tensor, BufferRange::from(buffer)))
                    .collect();
                let bound = plan.bind(&gpu, &given)?;
                let written = ranges.iter().filter(|(used, _)| used.access.writes());
                let (names, buffers): (Vec<_>, Vec<_>) = written
                    .map(|(used, buffer)| (used.tensor, buffer.clone()))
                    .unzip();
                let read = gpu.submit_and_read(|encoder| bound.record(encoder), &buffers);
                Ok(names.into_iter().zip(block_on(read)?).collect())
            });
        }
    }
}

/// Tensors in whole words.
struct Memory(Tensors);

impl Storage for Memory {
    type Error = Error;

    async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        to.copy_from_slice(&self.0[&tensor][offset as usize..][..to.len()]);
        Ok(())
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Error> {
        let bytes = self.0.get_mut(&tensor).unwrap();
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

#[test]
fn streams() {
    for gpu in contexts() {
        let profile = Profile {
            window_unit: 256,
            ..gpu.profile().clone()
        };
        let gpu = gpu.with_profile(profile);
        for operation in operations() {
            let Err(Error::Budget { expected, .. }) = Stream::new(&gpu, &operation, 0) else {
                panic!("{operation}: a stream without memory");
            };
            refuse_each(&operation.to_string(), || {
                let stream = Stream::new(&gpu, &operation, expected)?;
                let tensors = operation.tensors()?.into_iter().map(|used| {
                    let mut bytes = numbers(&used);
                    bytes.resize(bytes.len().next_multiple_of(4), 0);
                    (used.tensor, bytes)
                });
                let mut memory = Memory(tensors.collect());
                block_on(stream.run(&mut memory))?;
                Ok(memory.0)
            });
        }
    }
}

/// Two ranks that are threads.
struct Pair {
    messages: [Mutex<Vec<u8>>; 2],
    barrier: Barrier,
}

struct Rank<'a>(usize, &'a Pair);

impl AllGather for Rank<'_> {
    type Error = Error;

    fn rank(&self) -> usize {
        self.0
    }

    fn ranks(&self) -> usize {
        2
    }

    async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let Self(rank, pair) = self;
        *pair.messages[*rank].lock().unwrap() = bytes.to_vec();
        pair.barrier.wait();
        let own = |message: &Mutex<Vec<u8>>| message.lock().unwrap().clone();
        let all = pair.messages.iter().flat_map(own).collect();
        pair.barrier.wait();
        Ok(all)
    }
}

/// A step is refused on one of two ranks: the other ends, too, and says which rank failed.
#[test]
fn ranks() {
    for gpu in contexts() {
        for operation in operations() {
            let pair = Pair {
                messages: Default::default(),
                barrier: Barrier::new(2),
            };
            let on = |rank| {
                fill(&operation, |inputs, outputs| {
                    let rank = Rank(rank, &pair);
                    block_on(synchronized::run_into(
                        &operation, &gpu, rank, inputs, outputs,
                    ))
                })
            };
            for refused in 0..2 {
                let failed = format!("rank {refused}");
                refuse_each(&operation.to_string(), || {
                    thread::scope(|scope| {
                        let other = scope.spawn(|| on(1 - refused));
                        match (on(refused), other.join().unwrap()) {
                            (Err(own), Err(other)) => {
                                assert!(matches!(other, Error::Ranks { .. }), "{other:?}");
                                assert!(other.to_string().contains(&failed), "{other}");
                                Err(own)
                            }
                            (own, other) => {
                                other.unwrap_or_else(|error| panic!("only the other: {error}"));
                                own
                            }
                        }
                    })
                });
            }
        }
    }
}
