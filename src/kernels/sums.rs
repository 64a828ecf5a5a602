//! The sums that a body takes, as WGSL, whichever they are. Their list names the words of a record, of which there are
//! four.
//!
//! * `struct Accumulator`: a real4 for each sum, of four channels or of four shares of one
//! * `alias Total`: the sums of one channel
//! * `accumulator(…) -> Accumulator`: from the values of all sums in the list
//! * `sum_NAME(sums) -> real4`: one of them
//! * `add_sums(a, b)`, `scale_sums(sums, by)`
//! * `total_of(sums, i) -> Total`: those of channel i of the four
//! * `words_of_total(total) -> real4`, `accumulator_of(words) -> Accumulator`: to a record, and from four side by side
//!
//! A sum that is listed but not taken is 0: it has a word of a record, and costs no arithmetic.

use super::functions::{called_of, each};
use std::collections::HashSet;

/// A word of a record of sums.
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    pub name: &'static str,
    pub is_taken: bool,
}

pub(super) const fn taken(name: &'static str) -> Sum {
    Sum {
        name,
        is_taken: true,
    }
}

pub(super) const fn not_taken(name: &'static str) -> Sum {
    Sum {
        name,
        is_taken: false,
    }
}

/// The types, and the functions that the kernel calls.
pub(super) fn text(sums: &[Sum], called: &HashSet<&str>) -> Vec<String> {
    let taken: Vec<_> = sums.iter().filter(|sum| sum.is_taken).collect();
    let all = each(sums.iter().map(|sum| sum.name), "NAME: real4");
    let each_taken = |text: &str| each(taken.iter().map(|sum| sum.name), text);
    // A single sum is no vector.
    let (total, parts): (_, &[_]) = match taken.len() {
        1 => ("real".to_owned(), &["total"]),
        count => (
            format!("vec{count}<real>"),
            &["total.x", "total.y", "total.z", "total.w"],
        ),
    };
    let mut parts = parts.iter();
    let mut record = ["0.0"; 4];
    let mut fields = Vec::new();
    for ((sum, word), name) in sums.iter().zip(&mut record).zip(["x", "y", "z", "w"]) {
        if sum.is_taken {
            *word = parts.next().unwrap_or(word);
            fields.push(format!("words.{name}"));
        }
    }
    let accumulator = |fields: String| format!("return Accumulator({fields});");
    let mut functions = vec![
        (
            format!("accumulator({all}) -> Accumulator"),
            accumulator(each_taken("NAME")),
        ),
        (
            "add_sums(a: Accumulator, b: Accumulator) -> Accumulator".to_owned(),
            accumulator(each_taken("a.NAME + b.NAME")),
        ),
        (
            "scale_sums(sums: Accumulator, by: real4) -> Accumulator".to_owned(),
            accumulator(each_taken("sums.NAME * by")),
        ),
        (
            "accumulator_of(words: Words) -> Accumulator".to_owned(),
            accumulator(fields.join(", ")),
        ),
        (
            "total_of(sums: Accumulator, i: u32) -> Total".to_owned(),
            format!("return Total({});", each_taken("sums.NAME[i]")),
        ),
        (
            "words_of_total(total: Total) -> real4".to_owned(),
            format!("return real4({});", record.join(", ")),
        ),
    ];
    functions.extend(sums.iter().map(|Sum { name, is_taken }| {
        let sum = if *is_taken {
            format!("sums.{name}")
        } else {
            "real4()".to_owned()
        };
        (
            format!("sum_{name}(sums: Accumulator) -> real4"),
            format!("return {sum};"),
        )
    }));
    let types = format!(
        "struct Accumulator {{ {} }}\n\nalias Total = {total};\n",
        each_taken("NAME: real4")
    );
    [types]
        .into_iter()
        .chain(called_of(&functions, called))
        .collect()
}
