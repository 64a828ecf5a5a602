//! The order of the cases: when time runs out, there should be some of every kind.

use crate::measure::operators::Op;
use crate::measure::selection::Selection;
use crate::measure::sets::{Case, Set};
use crate::results::summary::distinct;
use clap::ValueEnum as _;
use std::collections::{HashMap, HashSet};
use wgpu_norm::DType;
use wgpu_norm_verify as verify;

/// What a case is of.
pub trait Kinds {
    /// Its operator, which names the pass, and its element type.
    fn kinds(&self) -> [String; 2];
}

impl Kinds for Case {
    fn kinds(&self) -> [String; 2] {
        [self.op.name(), self.dtype.to_string()]
    }
}

impl Kinds for verify::Case {
    fn kinds(&self) -> [String; 2] {
        let operation = self.operation();
        [operation.name(), operation.types.data.to_string()]
    }
}

/// The cases of a set and of the small one, by default of all operators.
pub fn cases(selection: &Selection, set: Set, dtypes: &[DType]) -> Vec<Case> {
    let cases =
        |set, shapes: fn(Set, Op) -> _| selection.cases(Op::value_variants(), set, shapes, dtypes);
    let first = cases(set, Set::representatives);
    let rest = [cases(Set::Small, Set::shapes), cases(set, Set::shapes)];
    let all = distinct(first.into_iter().chain(rest.into_iter().flatten()));
    // Both layouts and both sets.
    let kind = |case: &Case| format!("{:?} {:?} {}", case.kinds(), case.data_format, case.set);
    spread(in_turns(all, |case| [kind(case)]))
}

/// Moves the first cases of each operator and of each type to the front, then those of each operator in each type, and
/// so on.
pub fn spread<T: Kinds>(cases: Vec<T>) -> Vec<T> {
    in_turns(in_turns(cases, |case| [case.kinds().concat()]), T::kinds)
}

/// The first case of each kind, then the second of each, and so on.
fn in_turns<T, const N: usize>(cases: Vec<T>, kinds: impl Fn(&T) -> [String; N]) -> Vec<T> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut turn = |kind| {
        let count = counts.entry(kind).or_default();
        *count += 1;
        *count
    };
    let turn_of = |case| (kinds(&case).map(&mut turn).into_iter().min(), case);
    let mut turns: Vec<_> = cases.into_iter().map(turn_of).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, case)| case).collect()
}

/// The kinds that none of the first `done` cases is of, in words that follow a number of cases.
pub fn none_of(cases: &[impl Kinds], done: usize) -> String {
    let mut known: HashSet<String> = cases.iter().take(done).flat_map(Kinds::kinds).collect();
    let mut missing: Vec<String> = cases.iter().flat_map(Kinds::kinds).collect();
    missing.retain(|kind| known.insert(kind.clone()));
    if missing.is_empty() {
        return String::new();
    }
    format!(", none of {}", missing.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::{Args as _, Command, FromArgMatches as _};

    fn selection(arguments: &[&str]) -> Selection {
        let command = Selection::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        Selection::from_arg_matches(&matches).unwrap()
    }

    const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

    /// Asserts that each operator (which names its pass) and each type are among the first `some` cases, and each
    /// operator in each type among the first `more`.
    fn assert_spread<T: Kinds>(cases: &[T], some: usize, more: usize) {
        let kinds = |cases: &[T]| -> HashSet<String> { cases.iter().flat_map(T::kinds).collect() };
        let pairs = |cases: &[T]| -> HashSet<[String; 2]> { cases.iter().map(T::kinds).collect() };
        assert_eq!(kinds(&cases[..some]), kinds(cases));
        assert_eq!(pairs(&cases[..more]), pairs(cases));
        assert_eq!(none_of(cases, some), "");
    }

    #[test]
    fn every_operator_and_type_is_measured_early_and_every_case_once() {
        for set in [Set::Gpu, Set::Software] {
            let all = cases(&selection(&[]), set, &TYPES);
            assert_spread(&all, 17, 47);
            // Gradients, forward passes and inference among them.
            let whole: HashSet<_> = Op::value_variants().iter().map(|op| op.name()).collect();
            let names: HashSet<_> = all[..17].iter().map(|case| case.op.name()).collect();
            assert_eq!(names, whole);
            let kinds = |cases: &[Case]| -> HashSet<String> {
                let kind =
                    |case: &Case| format!("{} {:?} {}", case.op.name(), case.data_format, case.set);
                cases.iter().map(kind).collect()
            };
            // Small shapes, in both layouts.
            assert_eq!(kinds(&all[..180]), kinds(&all));
            let of = |set| {
                selection(&[])
                    .cases(Op::value_variants(), set, Set::shapes, &TYPES)
                    .len()
            };
            assert_eq!(all.len(), of(set) + of(Set::Small));
        }
    }

    #[test]
    fn every_operator_and_type_is_verified_early_and_every_case_once() {
        let listed = verify::cases(false);
        let all = spread(listed.clone());
        assert_spread(&all, 20, 64);
        assert_eq!(all.len(), listed.len());
        assert!(listed.iter().all(|case| all.contains(case)));
    }

    #[test]
    fn what_was_not_reached_is_named() {
        let all = cases(
            &selection(&["--op", "batch-norm,layer-norm-forward"]),
            Set::Gpu,
            &TYPES,
        );
        assert_eq!(none_of(&all, 1), ", none of f16, bf16, layer-norm-forward");
        assert_eq!(none_of(&all, all.len()), "");
    }

    #[test]
    fn given_shapes_come_once() {
        let given = selection(&["--shape", "4x8x5", "--op", "batch-norm,layer-norm"]);
        let all = cases(&given, Set::Software, &TYPES);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|case| case.set == "custom"));
    }
}
