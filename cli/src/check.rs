//! The comparison of results with the float64 reference.

use crate::failure::Failure;
use crate::stdout;
use wgpu_norm::reference::{SUM_ULPS, scaled_error};
use wgpu_norm::{DType, Element};

/// What came of each output.
#[derive(Debug, Default)]
pub struct Comparison(Vec<Compared>);

#[derive(Debug)]
struct Compared {
    tensor: &'static str,
    /// The largest error, in tolerances.
    error: f64,
    words: String,
}

/// What the reference has for an output.
#[derive(Debug)]
pub struct Expected {
    tensor: &'static str,
    values: Vec<f64>,
    /// Sizes of the values' terms.
    scale: Vec<f64>,
    /// Elements of which rounding decides whether they pass the activation, so that the output may be either way.
    undecided: usize,
}

impl Expected {
    pub fn new(tensor: &'static str, values: Vec<f64>, scale: Vec<f64>) -> Self {
        Self {
            tensor,
            values,
            scale,
            undecided: 0,
        }
    }

    /// The same where rounding decides whether so many elements pass the activation; the scale allows for both.
    pub fn with_undecided(self, undecided: usize) -> Self {
        Self { undecided, ..self }
    }
}

impl Comparison {
    /// Compares outputs with what is expected for those of the same name; nothing is no match.
    pub fn add_all<T: Element>(
        &mut self,
        outputs: &[(&'static str, Vec<T>)],
        expected: &[Expected],
    ) {
        for (tensor, got) in outputs {
            match expected.iter().find(|expected| expected.tensor == *tensor) {
                Some(want) => self.add(want, got),
                None => self.push(tensor, f64::INFINITY, in_words(f64::INFINITY)),
            }
        }
    }

    /// Compares an output.
    fn add<T: Element>(&mut self, want: &Expected, got: &[T]) {
        let error = scaled_error(got, &want.values, &want.scale);
        let words = in_words(error) + &either_way(want.undecided);
        self.push(want.tensor, error, words);
    }

    /// Compares a mask with what is expected for one: what the activation is applied to, in sums of this type. Where that is
    /// within its tolerance of 0, either bit is right.
    pub fn add_mask(&mut self, got: &[u32], expected: &[Expected], sums: DType) {
        let tensor = "mask";
        let Some(want) = expected.iter().find(|expected| expected.tensor == tensor) else {
            return self.push(tensor, f64::INFINITY, "wrong, none expected".to_owned());
        };
        let bits = Bits::of(got, want, sums);
        match bits.wrong {
            0 => self.push(tensor, 0.0, format!("ok{}", either_way(bits.undecided))),
            wrong => self.push(tensor, f64::INFINITY, format!("wrong, in {wrong} bits")),
        }
    }

    fn push(&mut self, tensor: &'static str, error: f64, words: String) {
        self.0.push(Compared {
            tensor,
            error,
            words,
        });
    }

    /// Prints one line per output; a failure if one of them is off.
    pub fn report(&self) -> Result<(), Failure> {
        for Compared { tensor, words, .. } in &self.0 {
            stdout::line(format_args!("check {tensor}: {words}"))?;
        }
        self.verdict()
    }

    fn verdict(&self) -> Result<(), Failure> {
        let worst = self.0.iter().max_by(|a, b| a.error.total_cmp(&b.error));
        match worst {
            Some(&Compared { tensor, error, .. }) if error.is_nan() || error > 1.0 => {
                Err(Failure::Check { tensor })
            }
            _ => Ok(()),
        }
    }
}

/// The bits of a mask beside what they should be.
#[derive(Debug, PartialEq)]
struct Bits {
    wrong: usize,
    undecided: usize,
}

impl Bits {
    fn of(got: &[u32], want: &Expected, sums: DType) -> Self {
        let mut bits = Self {
            wrong: 0,
            undecided: 0,
        };
        if got.len() != want.values.len().div_ceil(32) {
            return Self { wrong: 1, ..bits };
        }
        let mut values = want.values.iter().zip(&want.scale);
        for (word, bit) in got
            .iter()
            .flat_map(|word| (0..32).map(move |bit| (word, bit)))
        {
            let is_set = word >> bit & 1 == 1;
            // Bits behind the last element are 0.
            let (value, scale) = values.next().unwrap_or((&0.0, &0.0));
            if is_undecided(*value, SUM_ULPS * *scale, sums) {
                bits.undecided += 1;
            } else if is_set != (*value > 0.0 || value.is_nan()) {
                bits.wrong += 1;
            }
        }
        bits
    }
}

/// Whether a number that is off by at most so many roundings may lie on either side of 0.
pub fn is_undecided(value: f64, roundings: f64, sums: DType) -> bool {
    let tolerance = sums.unit_roundoff() * roundings;
    tolerance > 0.0 && tolerance.is_finite() && value.abs() <= tolerance
}

/// What there is to say of elements that rounding decides.
fn either_way(undecided: usize) -> String {
    match undecided {
        0 => String::new(),
        n => format!(", either way for the elements whose activation rounding decides: {n}"),
    }
}

/// An error in tolerances, for people.
fn in_words(error: f64) -> String {
    if !error.is_finite() {
        "wrong, not finite where the reference is, or finite where it is not".to_owned()
    } else if error >= 1000.0 {
        format!("wrong, largest error {error:.1e} times what rounding may cause")
    } else if error > 1.0 {
        format!("wrong, largest error {error:.3} times what rounding may cause")
    } else {
        let percent = (100.0 * error).ceil();
        format!("ok, largest error {percent} % of what rounding may cause")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(tensor: &'static str) -> Expected {
        Expected::new(tensor, vec![1.0], vec![1.0])
    }

    #[test]
    fn names_the_worst_output() {
        let mut comparison = Comparison::default();
        comparison.add(&one("diff_src"), &[1.0_f32]);
        assert!(comparison.verdict().is_ok());
        comparison.add(&one("diff_gamma"), &[1.1_f32]);
        comparison.add(&one("diff_beta"), &[1.001_f32]);
        let verdict = comparison.verdict();
        assert!(
            matches!(
                verdict,
                Err(Failure::Check {
                    tensor: "diff_gamma"
                })
            ),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_lost_number_fails() {
        let mut comparison = Comparison::default();
        comparison.add(&one("diff_src"), &[f32::NAN]);
        assert!(comparison.verdict().is_err());
    }

    #[test]
    fn bits_that_rounding_decides_are_right_either_way() {
        let want = Expected::new("mask", vec![1.0, -1.0, 1e-7, f64::NAN, 0.0], vec![1.0; 5]);
        let bits = |word| Bits::of(&[word], &want, DType::F32);
        let right = Bits {
            wrong: 0,
            undecided: 2,
        };
        for word in [0b01001, 0b01101, 0b11001] {
            assert_eq!(bits(word), right, "{word:b}");
        }
        // One that is set behind the end, or between, and ones that are not.
        for (word, wrong) in [(0b10_1001, 1), (0b01011, 1), (0b00100, 2)] {
            assert_eq!(bits(word), Bits { wrong, ..right }, "{word:b}");
        }
        assert_eq!(Bits::of(&[9, 0], &want, DType::F32).wrong, 1);
        let exact = Expected::new("mask", vec![0.0], vec![0.0]);
        assert_eq!(Bits::of(&[1], &exact, DType::F32).wrong, 1);
    }

    #[test]
    fn words_for_errors() {
        for (error, words) in [
            (0.0, "ok, largest error 0 %"),
            (0.029, "ok, largest error 3 %"),
            (1.0, "ok, largest error 100 %"),
            (1.004, "wrong, largest error 1.004 times"),
            (12.3456, "wrong, largest error 12.346 times"),
            (1234.5, "wrong, largest error 1.2e3 times"),
            (f64::INFINITY, "wrong, not finite"),
            (f64::NAN, "wrong, not finite"),
        ] {
            let said = in_words(error);
            assert!(said.starts_with(words), "{said}");
        }
    }
}
