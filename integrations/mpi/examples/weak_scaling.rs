//! The time that batch norm takes, forward and gradient, if every rank has the same number of samples, and how much of
//! that ranks spend on waiting for each other and on communication.
//!
//! ```sh
//! cargo build --release --example weak_scaling
//! for n in 1 2 4; do mpirun -n $n target/release/examples/weak_scaling; done
//! ```
//!
//! Each run prints one line of Markdown. On one machine the ranks share its processors, so only the last columns are
//! meaningful.

use mpi::traits::Communicator as _;
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wgpu_norm::synchronized::{AllGather, SyncBatchNorm};
use wgpu_norm::{BackwardArgs, BatchNormOptions, DataFormat, ForwardArgs, GpuContext};
use wgpu_norm_mpi::{Communicator, Options};

const SHAPE: [usize; 4] = [8, 256, 14, 14];
const STEPS: u32 = 20;

/// A communicator that times its gathers.
struct Timed {
    communicator: Communicator,
    spent: Rc<Cell<Duration>>,
    bytes: Rc<Cell<usize>>,
}

impl AllGather for Timed {
    type Error = wgpu_norm_mpi::Error;

    fn rank(&self) -> usize {
        self.communicator.rank()
    }

    fn ranks(&self) -> usize {
        self.communicator.ranks()
    }

    async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Self::Error> {
        let start = Instant::now();
        let all = self.communicator.all_gather(bytes);
        self.spent.set(self.spent.get() + start.elapsed());
        self.bytes.set(self.bytes.get() + bytes.len());
        all
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let threading = mpi::Threading::Funneled;
    let (universe, _) = mpi::initialize_with_threading(threading).ok_or("MPI runs already")?;
    let world = universe.world();
    let communicator = Communicator::duplicate(&world, Options::default())?;
    let gpu = pollster::block_on(GpuContext::new())?;
    let (spent, bytes) = (
        Rc::<Cell<Duration>>::default(),
        Rc::<Cell<usize>>::default(),
    );
    let timed = Timed {
        communicator,
        spent: spent.clone(),
        bytes: bytes.clone(),
    };
    let options = BatchNormOptions::new(DataFormat::Ncx);
    let elements = SHAPE.iter().product();
    let src: Vec<f32> = (0..elements).map(|i: usize| (i % 251) as f32).collect();
    let mut times = Vec::new();
    let mut gathers = Vec::new();
    pollster::block_on(async {
        let mut layer = SyncBatchNorm::new(&gpu, options, timed)?;
        for _ in 0..=STEPS {
            spent.set(Duration::ZERO);
            bytes.set(0);
            let start = Instant::now();
            let output = layer.forward(ForwardArgs::new(&SHAPE, &src)).await?;
            let args = BackwardArgs::new(&SHAPE, &src, &src, &output.saved);
            layer.backward(args).await?;
            times.push(start.elapsed());
            gathers.push(spent.get());
        }
        Ok::<_, wgpu_norm_mpi::Error>(())
    })?;
    // The first step compiles.
    let median = |times: &[Duration]| {
        let mut times = times.get(1..).unwrap_or_default().to_vec();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    if world.rank() == 0 {
        println!(
            "| {} | {:.2} | {:.3} | {} |",
            world.size(),
            median(&times).as_secs_f64() * 1e3,
            median(&gathers).as_secs_f64() * 1e3,
            bytes.get()
        );
    }
    Ok(())
}
