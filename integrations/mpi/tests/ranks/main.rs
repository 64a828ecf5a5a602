//! Tests with ranks under `mpirun`. This program has no test harness: for each case it starts itself again, or
//! `wgpu-norm-mpi`, with the number of ranks that the case needs.
//!
//! `cargo test --test ranks -- NAME` runs the cases whose names contain NAME.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
#[path = "../../../../examples/digits/data.rs"]
#[allow(dead_code, reason = "the example's, which needs more of it")]
mod data;
mod digits;
mod layer;
#[path = "../../../../examples/digits/plain.rs"]
#[allow(dead_code, reason = "the example's, which needs more of it")]
mod plain;
mod runner;

use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use runner::{Expected, has_ranks, start};
use std::process::ExitCode;
use wgpu_norm::GpuContext;

/// The code of a case, run by every rank.
type Case = fn(&SimpleCommunicator, &GpuContext);

/// Each case with its numbers of ranks, and the expected end of the job.
const CASES: &[(&str, Case, &[usize], Expected)] = &[
    (
        "random_shapes_and_splits",
        layer::random_shapes,
        &[1, 2, 3, 5],
        Expected::Success,
    ),
    (
        "an_empty_rank",
        layer::an_empty_rank,
        &[2, 3],
        Expected::Success,
    ),
    (
        "parameters_of_16_bits",
        layer::parameters_of_16_bits,
        &[2],
        Expected::Success,
    ),
    (
        "a_wrong_epsilon",
        layer::a_wrong_epsilon,
        &[3],
        Expected::Success,
    ),
    (
        "a_skipped_call",
        layer::a_skipped_call,
        &[3],
        Expected::Success,
    ),
    (
        "a_rank_that_does_not_come",
        layer::a_rank_that_does_not_come,
        &[3],
        Expected::Failure("waited 2 s for the others"),
    ),
    (
        "a_killed_rank",
        layer::a_killed_rank,
        &[3],
        Expected::Failure(""),
    ),
    (
        "digits",
        digits::two_ranks_learn_as_one,
        &[2],
        Expected::Success,
    ),
];

fn main() -> ExitCode {
    let name = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    if has_ranks() {
        let name = name.expect("a case");
        let (_, case, ..) = CASES
            .iter()
            .find(|(known, ..)| *known == name)
            .expect("a case");
        rank(*case);
        return ExitCode::SUCCESS;
    }
    let wanted = |known: &str| {
        name.as_ref()
            .is_none_or(|name| known.contains(name.as_str()))
    };
    let mut failed = 0;
    let mut report = |name: &str, result: Result<(), String>| match result {
        Ok(()) => println!("test {name} ... ok"),
        Err(why) => {
            println!("test {name} ... FAILED\n{why}");
            failed += 1;
        }
    };
    let this = std::env::current_exe().expect("this program");
    for (name, _, numbers, expected) in CASES.iter().filter(|(name, ..)| wanted(name)) {
        for &ranks in *numbers {
            let name_and_ranks = format!("{name} on {ranks}");
            report(
                &name_and_ranks,
                start(ranks, this.as_ref(), [name]).check(expected),
            );
        }
    }
    for (name, case) in command::CASES.iter().filter(|(name, _)| wanted(name)) {
        report(name, case());
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs a case as one of the ranks.
fn rank(case: Case) {
    // Otherwise the others would wait for this rank in MPI_Finalize.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(101);
    }));
    let threading = mpi::Threading::Funneled;
    let (universe, _) = mpi::initialize_with_threading(threading).expect("MPI");
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    let world = universe.world();
    case(&world, &gpu);
    world.barrier_of_all();
}

/// A barrier on this crate's own communicator.
trait Barrier {
    fn barrier_of_all(&self);
}

impl Barrier for SimpleCommunicator {
    fn barrier_of_all(&self) {
        let all = wgpu_norm_mpi::Communicator::duplicate(self, Default::default()).unwrap();
        all.all_gather(&[]).unwrap();
        assert_eq!(all.ranks(), self.size() as usize);
    }
}
