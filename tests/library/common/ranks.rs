//! Ranks that are threads of this process, each with some of a problem's samples.

use super::Subject;
use super::data::{Problem, Values};
use pollster::block_on;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use wgpu_norm::Error;
use wgpu_norm::synchronized::Ranks;
use wgpu_norm::synchronized::{AllGather, run_into};

/// Threads that represent ranks.
#[derive(Clone, Debug)]
pub struct Threads {
    pub rank: usize,
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

/// Runs the same code on every rank, side by side.
pub fn on_ranks<T: Send>(ranks: usize, run: impl Fn(Threads) -> T + Sync) -> Vec<T> {
    let run = &run;
    thread::scope(|scope| {
        let threads = Threads::all(ranks).into_iter();
        let threads: Vec<_> = threads.map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// A rank's part of a tensor.
fn part(whole: &Values, samples: Range<usize>) -> Values {
    if whole.used.ranks != Ranks::Split {
        return whole.clone();
    }
    let mut used = whole.used.clone();
    used.shape[0] = samples.len();
    let each: usize = used.shape[1..].iter().product();
    Values::new(
        used,
        &whole.numbers()[samples.start * each..samples.end * each],
    )
}

/// Runs a problem on ranks that have so many samples each, and joins their results. What is the same on all ranks must
/// be so to the bit.
#[track_caller]
pub fn run(problem: &Problem, subject: &Subject, samples: &[usize], what: &str) -> Vec<Values> {
    let parts = samples.iter().scan(0, |end, samples| {
        let start = *end;
        *end += samples;
        let mut operation = problem.operation.clone();
        operation.shape[0] = *samples;
        let inputs = problem.inputs.iter();
        let inputs = inputs.map(|whole| part(whole, start..*end)).collect();
        Some(Problem { operation, inputs })
    });
    let parts: Vec<Problem> = parts.collect();
    // Here, as a thread that panics leaves the others waiting.
    for own in &parts {
        let tensors = own.operation.tensors();
        tensors.unwrap_or_else(|error| panic!("{what}: {}: {error}", own.operation));
    }
    let results = on_ranks(samples.len(), |rank| {
        let own = &parts[rank.rank];
        own.run_by(|inputs, outputs| {
            let run = run_into(&own.operation, &subject.gpu, rank, inputs, outputs);
            block_on(run)
        })
    });
    let results = results.into_iter();
    let results: Vec<Vec<Values>> = results
        .map(|own| own.unwrap_or_else(|error| panic!("{what}: {error}")))
        .collect();
    let joined = problem.results().into_iter().enumerate();
    joined
        .map(|(at, whole)| {
            let of_ranks = results.iter().map(|own| &own[at]);
            if whole.used.ranks == Ranks::Split {
                let numbers: Vec<f64> = of_ranks.flat_map(Values::numbers).collect();
                return Values::new(whole.used, &numbers);
            }
            let first = &results[0][at];
            for (rank, own) in of_ranks.enumerate() {
                assert_eq!(own, first, "{what}: on rank {rank}");
            }
            first.clone()
        })
        .collect()
}
