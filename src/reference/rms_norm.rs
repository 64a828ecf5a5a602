//! The gradient of RMS norm.

use super::{
    Gradients, OF_ELEMENTS, Sums, check_length, counted, inverse_deviation, rows_and_columns, zeros,
};
use crate::{Error, ParamGrads, memory};

/// RMS norm's gradient: per row, with r = 1/√(mean_square + epsilon), x̂ = src·r and d = diff_dst·gamma,
/// diff_src = r·(d − x̂·(Σd·x̂/m)); diff_gamma = Σ diff_dst·x̂ over the rows.
///
/// A row is one index into the axes before `begin_norm_axis`, a column one into the others. The scale of diff_src is
/// r·(max|d| + max|x̂|·Σ|d·x̂|/m), the row's. There is no beta: [`Gradients::diff_beta`] is empty.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'a> {
    /// Sizes of `src` and `diff_dst`, rank 1 to 8, row-major.
    pub shape: &'a [usize],
    /// The first normalized axis, from 0 to rank − 1.
    pub begin_norm_axis: usize,
    /// The forward pass's input.
    pub src: &'a [f64],
    /// Gradient of the forward pass's output.
    pub diff_dst: &'a [f64],
    /// Mean of the squares per row.
    pub mean_square: &'a [f64],
    /// Scale per column; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Added to the mean of squares.
    pub epsilon: f64,
    /// [`ParamGrads::Neither`] makes `diff_src` ignore gamma.
    pub param_grads: ParamGrads,
}

impl RmsNorm<'_> {
    /// Computes the gradients by the formula.
    ///
    /// # Errors
    /// As [`LayerNorm::backward`](super::LayerNorm::backward).
    pub fn backward(&self) -> Result<Gradients, Error> {
        let (elements, rows, columns) =
            rows_and_columns(self.shape, self.begin_norm_axis, "mean_square")?;
        check_length("src", elements, self.src.len())?;
        check_length("diff_dst", elements, self.diff_dst.len())?;
        check_length("mean_square", rows, self.mean_square.len())?;
        check_length("gamma", columns, self.gamma.map_or(columns, <[f64]>::len))?;

        let m = columns as f64;
        let mut diff_src = memory::room(OF_ELEMENTS, elements)?;
        let mut diff_src_scale = memory::room(OF_ELEMENTS, elements)?;
        let mut column_sums = zeros(columns)?;
        let gamma = counted(self.gamma, self.param_grads);
        for (row, r) in inverse_deviation(self.mean_square, self.epsilon).enumerate() {
            let start = row * columns;
            let x_hat = |i: usize| self.src[i] * r;
            let d = |i: usize| self.diff_dst[i] * gamma.map_or(1.0, |gamma| gamma[i - start]);

            let mut sums = Sums::default();
            for (i, column) in (start..).zip(&mut column_sums) {
                sums.add(d(i), x_hat(i));
                column.add(self.diff_dst[i], x_hat(i));
            }
            let scale = sums.max_d + sums.max_x_hat * (sums.abs_d_x_hat / m);
            for i in start..start + columns {
                diff_src.push(r * (d(i) - x_hat(i) * (sums.d_x_hat / m)));
                diff_src_scale.push(r * scale);
            }
        }
        let mut gradients = Gradients::new(diff_src, diff_src_scale, &column_sums)?;
        gradients.diff_beta.clear();
        gradients.diff_beta_scale.clear();
        Ok(gradients)
    }
}
