//! Random operations over random shares of a batch, compared with the reference for the whole.

use crate::common::data::{Problem, Random, assert_close};
use crate::common::{Subject, random_cases, ranks, subjects};
use std::ops::Range;
use wgpu_norm::{
    Activation, Backward, DType, DTypes, DataFormat, Epilogue, Forward, Norm, Operation, Pass,
    Residual, RunningUpdate, RunningVariance, Through,
};

/// Random choices.
struct Draw(Random);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        (self.0.bits() % end as u64) as usize
    }

    fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn some_of(&mut self, axes: Range<i64>) -> Vec<i64> {
        axes.filter(|_| self.one_in(2)).collect()
    }

    /// Samples, and up to three axes of theirs.
    fn shape(&mut self) -> Vec<usize> {
        let rank = 1 + self.below(3);
        let mut shape: Vec<usize> = (0..rank).map(|_| 1 + self.below(6)).collect();
        if self.one_in(4) {
            shape[rank - 1] += self.below(60);
        }
        shape.insert(0, self.below(10));
        shape
    }

    fn norm(&mut self, shape: &[usize]) -> Norm {
        let rank = shape.len() as i64;
        let begin_norm_axis = 1 + self.below(shape.len() - 1) as i64 - self.of(&[0, rank]);
        let format = self.of(&[DataFormat::Ncx, DataFormat::Nxc]);
        let channels = match format {
            DataFormat::Ncx => shape[1],
            DataFormat::Nxc => shape[shape.len() - 1],
        };
        let groups = (1..=channels).filter(|&groups| channels.is_multiple_of(groups));
        match self.below(7) {
            0 => Norm::batch(format),
            1 => Norm::group(self.of(&groups.collect::<Vec<_>>()), format),
            2 => Norm::instance(format),
            3 => Norm::layer(begin_norm_axis),
            4 => Norm::rms(begin_norm_axis),
            _ => Norm::axes(
                &[self.some_of(1..rank - 1), vec![rank - 1]].concat(),
                &self.some_of(0..rank),
            )
            .centered(self.one_in(2)),
        }
    }

    fn pass(&mut self) -> Pass {
        let update = RunningUpdate::new(
            self.of(&[0.0, 0.25, 1.0]),
            self.of(&[RunningVariance::Biased, RunningVariance::Unbiased]),
        );
        let param_grads = [true, true, false];
        let backward = Backward::default()
            .with_through(self.of(&[Through::Batch, Through::Batch, Through::Constant]))
            .with_param_grads(self.of(&param_grads));
        match self.below(8) {
            0 => Pass::Inference,
            1 => Forward::default().into(),
            2 => Forward::default().without_statistics().into(),
            3 => Forward::default().with_running(update).into(),
            _ => backward.into(),
        }
    }

    fn types(&mut self) -> DTypes {
        let data = self.of(&DType::ALL);
        let types = DTypes::from((data, self.of(&[data, data.accumulator()])));
        types.with_statistics(self.of(&[types.params, types.statistics]))
    }

    /// An operation that the subject supports.
    fn operation(&mut self, subject: &Subject) -> Operation {
        let shape = self.shape();
        let norm = self.norm(&shape);
        loop {
            let operation = Operation::new(norm.clone(), self.pass(), &shape, self.types());
            let epilogue = Epilogue::new(
                self.of(&[Residual::None, Residual::Before, Residual::After]),
                self.of(Activation::NAMES).1,
            );
            let operation = operation
                .with_params(!self.one_in(4), !self.one_in(2))
                .with_zero_centered_gamma(self.one_in(4))
                .with_gate(self.one_in(4));
            let operation = match self.one_in(2) {
                true => operation.with_epilogue(epilogue),
                false => operation,
            };
            if operation.plan(subject.gpu.profile()).is_ok() {
                return operation;
            }
        }
    }

    /// The samples of one to four ranks.
    fn shares(&mut self, all: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..self.below(4)).map(|_| self.below(all + 1)).collect();
        cuts.extend([0, all]);
        cuts.sort_unstable();
        cuts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }
}

/// Each seed makes an operation, whose kernels take most of the time, and several batches of it. Adapters take turns.
#[test]
fn ranks_compute_what_the_reference_does() {
    let seeds = 0..u64::from(random_cases(384));
    for (seed, subject) in seeds.zip(subjects().iter().cycle()) {
        let mut draw = Draw(Random::new(seed));
        let mut operation = draw.operation(subject);
        for batch in 0..5 {
            operation.shape[0] = draw.below(10);
            let shares = draw.shares(operation.shape[0]);
            // The unbiased variance needs two elements of a channel.
            if operation.plan(subject.gpu.profile()).is_err() {
                continue;
            }
            let name = &subject.name;
            let what =
                format!("seed {seed}, batch {batch} of {operation:?} as {shares:?} on {name}");
            let problem = Problem::random(&operation, seed + batch);
            let got = ranks::run(&problem, subject, &shares, &what);
            assert_close(&got, &problem.reference(), &what);
        }
    }
}
