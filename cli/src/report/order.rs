//! The order of the cases: when time runs out, there should be some of every kind, and the most valuable ones.

use crate::measure::operators::Op;
use crate::measure::selection::Selection;
use crate::measure::sets::{Case, Set};
use wgpu_norm::DType;

/// The cases of a set and of the small one. The first element type comes first: shapes of every kind, small ones; then
/// shapes of every kind in the other types; then the rest.
pub fn cases(selection: &Selection, set: Set, dtypes: &[DType]) -> Vec<Case> {
    let (first, others) = dtypes.split_at(dtypes.len().min(1));
    let stages = [
        alternating(&selection.cases(set, Set::representatives, first)),
        alternating(&selection.cases(Set::Small, Set::shapes, first)),
        alternating(&selection.cases(set, Set::representatives, others)),
        alternating(&selection.cases(set, Set::shapes, first)),
        alternating(&selection.cases(set, Set::shapes, others)),
        alternating(&selection.cases(Set::Small, Set::shapes, others)),
    ];
    let mut cases: Vec<Case> = Vec::new();
    for case in stages.into_iter().flatten() {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// Alternates between the operators, each in its own order.
fn alternating(cases: &[Case]) -> Vec<Case> {
    let mut all: Vec<(f64, Case)> = Vec::new();
    for op in Op::ALL {
        let of_op = cases.iter().filter(|case| case.op == op);
        let count = of_op.clone().count().max(1) as f64;
        let placed = of_op.cloned().enumerate();
        all.extend(placed.map(|(index, case)| ((index as f64 + 0.5) / count, case)));
    }
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    all.into_iter().map(|(_, case)| case).collect()
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

    #[test]
    fn every_kind_is_among_the_first_and_every_case_once() {
        let all = cases(&selection(&[]), Set::Gpu, &TYPES);
        let kinds = |cases: &[Case]| {
            let mut kinds = Vec::new();
            for case in cases {
                let kind = (case.op, case.data_format, case.dtype, case.set);
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            kinds.len()
        };
        // Two formats of batch norm, and one of each operator over rows.
        let formats = 1 + Op::USUAL.len();
        assert_eq!(kinds(&all[..5]), formats);
        // These are all kinds except small shapes of the other types.
        assert_eq!(kinds(&all[..50]), 4 * formats);
        assert_eq!(kinds(&all), 6 * formats);
        let whole = selection(&[]).cases(Set::Gpu, Set::shapes, &TYPES).len()
            + selection(&[]).cases(Set::Small, Set::shapes, &TYPES).len();
        assert_eq!(all.len(), whole);
    }

    #[test]
    fn given_shapes_come_once() {
        let given = selection(&["--shape", "4x8x5", "--op", "batch-norm,layer-norm"]);
        let all = cases(&given, Set::Software, &TYPES);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|case| case.set == "custom"));
    }
}
