//! The comparison of results with the float64 reference.

use crate::failure::Failure;
use crate::stdout;
use wgpu_norm::Element;
use wgpu_norm::reference::scaled_error;

/// The largest error of each output, in tolerances.
#[derive(Debug, Default)]
pub struct Comparison(Vec<(&'static str, f64)>);

/// What the reference has for an output.
#[derive(Debug)]
pub struct Expected {
    tensor: &'static str,
    values: Vec<f64>,
    /// Sizes of the values' terms.
    scale: Vec<f64>,
}

impl Expected {
    pub fn new(tensor: &'static str, values: Vec<f64>, scale: Vec<f64>) -> Self {
        Self {
            tensor,
            values,
            scale,
        }
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
                Some(want) => self.add(tensor, got, &want.values, &want.scale),
                None => self.0.push((tensor, f64::INFINITY)),
            }
        }
    }

    /// Compares an output.
    fn add<T: Element>(&mut self, tensor: &'static str, got: &[T], want: &[f64], scale: &[f64]) {
        self.0.push((tensor, scaled_error(got, want, scale)));
    }

    /// Prints one line per output; a failure if one of them is off.
    pub fn report(&self) -> Result<(), Failure> {
        for (tensor, error) in &self.0 {
            stdout::line(format_args!("check {tensor}: {}", in_words(*error)))?;
        }
        self.verdict()
    }

    fn verdict(&self) -> Result<(), Failure> {
        let worst = self.0.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        match worst {
            Some(&(tensor, worst)) if worst.is_nan() || worst > 1.0 => {
                Err(Failure::Check { tensor })
            }
            _ => Ok(()),
        }
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

    #[test]
    fn names_the_worst_output() {
        let mut comparison = Comparison::default();
        comparison.add("diff_src", &[1.0_f32], &[1.0], &[1.0]);
        assert!(comparison.verdict().is_ok());
        comparison.add("diff_gamma", &[1.1_f32], &[1.0], &[1.0]);
        comparison.add("diff_beta", &[1.001_f32], &[1.0], &[1.0]);
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
        comparison.add("diff_src", &[f32::NAN], &[1.0], &[1.0]);
        assert!(comparison.verdict().is_err());
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
