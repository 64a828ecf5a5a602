//! The comparison of results with the float64 reference.

use crate::failure::Failure;
use crate::stdout;
use wgpu_norm::Element;
use wgpu_norm::reference::scaled_error;

/// The largest error of each output, in tolerances.
#[derive(Debug, Default)]
pub struct Comparison(Vec<(&'static str, f64)>);

impl Comparison {
    /// Compares an output.
    pub fn add<T: Element>(
        &mut self,
        tensor: &'static str,
        got: &[T],
        want: &[f64],
        scale: &[f64],
    ) {
        self.0.push((tensor, scaled_error(got, want, scale)));
    }

    /// Prints one line per output; a failure if one of them is off.
    pub fn report(&self) -> Result<(), Failure> {
        for (tensor, error) in &self.0 {
            stdout::line(format_args!(
                "check {tensor}: largest scaled error {error:.3} of 1 tolerance"
            ))?;
        }
        self.verdict()
    }

    fn verdict(&self) -> Result<(), Failure> {
        let worst = self.0.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        match worst {
            Some(&(tensor, worst)) if worst.is_nan() || worst > 1.0 => {
                Err(Failure::Check { tensor, worst })
            }
            _ => Ok(()),
        }
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
            matches!(verdict, Err(Failure::Check { tensor: "diff_gamma", worst }) if worst > 1.0),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_lost_number_fails() {
        let mut comparison = Comparison::default();
        comparison.add("diff_src", &[f32::NAN], &[1.0], &[1.0]);
        assert!(comparison.verdict().is_err());
    }
}
