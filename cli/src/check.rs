//! The comparison of results with the float64 reference.

use crate::failure::Failure;
use crate::numbers::slices;
use crate::stdout;
use half::{bf16, f16};
use wgpu_norm::support;
use wgpu_norm::{DType, Element, Error, Format, Operation, Tensor, TensorUse};
use wgpu_norm_verify::reference::{self, Computed, SUM_ULPS, scaled_error};

/// The comparison of each output.
#[derive(Debug, Default)]
pub struct Comparison(Vec<Compared>);

#[derive(Debug)]
struct Compared {
    tensor: &'static str,
    /// The largest error, in units of the tolerance.
    error: f64,
    words: String,
}

/// The number of elements that are compared at a time.
const PART: usize = 1 << 16;

/// Compares an operation's results with the reference's for the same inputs.
pub fn compare(
    operation: &Operation,
    inputs: &[(Tensor, &[u8])],
    results: &[(Tensor, &[u8])],
) -> Result<Comparison, Error> {
    let tensors = operation.tensors()?;
    let format = |tensor| {
        let used = tensors.iter().find(|used| used.tensor == tensor);
        used.map_or(Format::Bits, |used| used.format)
    };
    let mut values: Vec<(Tensor, Vec<f64>)> = vec![];
    for used in tensors.iter().filter(|used| used.access.reads()) {
        if let Some((_, bytes)) = inputs.iter().find(|(tensor, _)| *tensor == used.tensor) {
            values.push((used.tensor, to_f64(used, bytes)?));
        }
    }
    let expected = reference::compute(operation, &slices(&values))?;
    let mut comparison = Comparison::default();
    for &(tensor, got) in results {
        let want = expected.iter().find(|want| want.tensor == tensor);
        // A missing result of the reference is no match.
        let Some(want) = want else {
            comparison.push(tensor, f64::INFINITY, in_words(f64::INFINITY));
            continue;
        };
        match format(tensor) {
            Format::Elements(dtype) => comparison.add(dtype, want, got),
            _ => comparison.add_mask(want, got, operation.types.data.accumulator()),
        }
    }
    Ok(comparison)
}

/// A tensor's elements as the reference takes them; for a mask, 0 or 1 for each.
fn to_f64(used: &TensorUse, bytes: &[u8]) -> Result<Vec<f64>, Error> {
    let what = "a tensor in float64";
    match used.format {
        Format::Elements(dtype) => support::collect(what, dtype.values(bytes)),
        _ => {
            let bit = |index: usize| {
                let byte = bytes.get(index / 8).copied().unwrap_or_default();
                f64::from(byte >> (index % 8) & 1)
            };
            support::collect(what, (0..used.shape.iter().product()).map(bit))
        }
    }
}

impl Comparison {
    /// Compares an output.
    fn add(&mut self, dtype: DType, want: &Computed, got: &[u8]) {
        let error = match dtype {
            DType::F16 => largest_error::<f16>(want, got),
            DType::Bf16 => largest_error::<bf16>(want, got),
            DType::F32 => largest_error::<f32>(want, got),
            _ => largest_error::<f64>(want, got),
        };
        let words = in_words(error) + &either_way(want.undecided);
        self.push(want.tensor, error, words);
    }

    /// Compares a mask with the values that the activation is applied to, whose sums have this type. Where such a value
    /// is within its tolerance of 0, either bit is correct.
    fn add_mask(&mut self, want: &Computed, got: &[u8], sums: DType) {
        let bits = Bits::of(got, &want.values, &want.scale, sums);
        match bits.wrong {
            0 => self.push(
                want.tensor,
                0.0,
                format!("ok{}", either_way(bits.undecided)),
            ),
            wrong => {
                let words = format!("wrong, in {wrong} bits");
                self.push(want.tensor, f64::INFINITY, words);
            }
        }
    }

    fn push(&mut self, tensor: Tensor, error: f64, words: String) {
        self.0.push(Compared {
            tensor: tensor.name(),
            error,
            words,
        });
    }

    /// Prints one line per output; a failure if one of them is wrong.
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

/// The comparison of a mask's bits.
#[derive(Debug, PartialEq)]
struct Bits {
    wrong: usize,
    undecided: usize,
}

impl Bits {
    fn of(got: &[u8], values: &[f64], scale: &[f64], sums: DType) -> Self {
        let mut bits = Self {
            wrong: 0,
            undecided: 0,
        };
        if got.len() != 4 * values.len().div_ceil(32) {
            return Self { wrong: 1, ..bits };
        }
        let roundings = SUM_ULPS * sums.unit_roundoff();
        let mut values = values.iter().zip(scale);
        for bit in got
            .iter()
            .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1))
        {
            // NaN passes. Bits after the last element are 0.
            let (value, scale) = values.next().unwrap_or((&0.0, &0.0));
            let tolerance = roundings * scale.abs();
            if tolerance > 0.0 && tolerance.is_finite() && value.abs() <= tolerance {
                bits.undecided += 1;
            } else if (bit == 1) != (*value > 0.0 || value.is_nan() || bit == 1 && *scale < 0.0) {
                bits.wrong += 1;
            }
        }
        bits
    }
}

/// The largest error of an output's elements, in units of the tolerance.
fn largest_error<T: Element>(want: &Computed, got: &[u8]) -> f64 {
    if got.len() != want.values.len() * size_of::<T>() {
        return f64::INFINITY;
    }
    let parts = got.chunks(PART * size_of::<T>());
    let wanted = want.values.chunks(PART).zip(want.scale.chunks(PART));
    let errors = parts.zip(wanted).map(|(got, (values, scale))| {
        // The bytes may be unaligned.
        scaled_error(&bytemuck::pod_collect_to_vec::<u8, T>(got), values, scale)
    });
    errors.fold(0.0, f64::max)
}

/// A note on elements whose activation rounding decides.
fn either_way(undecided: usize) -> String {
    match undecided {
        0 => String::new(),
        n => format!(", either way for the elements whose activation rounding decides: {n}"),
    }
}

/// An error in units of the tolerance, in words.
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wgpu_norm::{Backward, Norm};

    /// The comparison of these results of layer norm's gradient, whose inputs are all 1.
    fn compared(results: &[(Tensor, f32)]) -> Comparison {
        let norm = Norm::layer(-1);
        let operation = Operation::new(norm, Backward::default(), &[1, 1], DType::F32);
        let one = bytemuck::bytes_of(&1.0_f32);
        let read = operation.tensors().unwrap().into_iter();
        let read = read.filter(|used| used.access.reads());
        let inputs: Vec<_> = read.map(|used| (used.tensor, one)).collect();
        let results = results.iter();
        let results: Vec<_> = results
            .map(|(tensor, value)| (*tensor, bytemuck::bytes_of(value)))
            .collect();
        compare(&operation, &inputs, &results).unwrap()
    }

    #[test]
    fn names_the_worst_output() {
        let right = [(Tensor::DiffSrc, 0.0), (Tensor::DiffBeta, 1.0)];
        assert!(compared(&right).verdict().is_ok());
        let wrong = [
            (Tensor::DiffSrc, 0.0),
            (Tensor::DiffBeta, 1.1),
            (Tensor::DiffGamma, 1e-40),
        ];
        let verdict = compared(&wrong).verdict();
        assert!(
            matches!(
                verdict,
                Err(Failure::Check {
                    tensor: "diff_beta"
                })
            ),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_lost_number_fails() {
        assert!(compared(&[(Tensor::DiffSrc, f32::NAN)]).verdict().is_err());
        // The reference has no such result.
        assert!(compared(&[(Tensor::Dst, 0.0)]).verdict().is_err());
    }

    #[test]
    fn bits_that_rounding_decides_are_right_either_way() {
        let values = [1.0, -1.0, 1e-7, f64::NAN, 0.0];
        let bits = |word: u32| Bits::of(&word.to_le_bytes(), &values, &[1.0; 5], DType::F32);
        let right = Bits {
            wrong: 0,
            undecided: 2,
        };
        for word in [0b01001, 0b01101, 0b11001] {
            assert_eq!(bits(word), right, "{word:b}");
        }
        // One bit set after the end, or in between, and bits that are missing.
        for (word, wrong) in [(0b10_1001, 1), (0b01011, 1), (0b00100, 2)] {
            assert_eq!(bits(word), Bits { wrong, ..right }, "{word:b}");
        }
        assert_eq!(
            Bits::of(&[9, 0, 0, 0, 0], &values, &[1.0; 5], DType::F32).wrong,
            1
        );
        let exact = Bits::of(&[1, 0, 0, 0], &[0.0], &[0.0], DType::F32);
        assert_eq!(exact.wrong, 1);
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
