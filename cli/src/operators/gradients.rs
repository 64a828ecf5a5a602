//! What the gradients have in common.

use super::tensors::{Arguments, Values};
use crate::check::Expected;
use crate::job::Job;
use wgpu_norm::reference::Gradients;
use wgpu_norm::{Grads, ParamGrads};

/// Says where gamma does not count.
pub fn warn_of_ignored_gamma(job: &Job, arguments: &Arguments, param_grads: ParamGrads) {
    if param_grads == ParamGrads::Neither && arguments.has("gamma") {
        job.warn("gamma: ignored, as --param-grads is neither; frozen lets it count");
    }
}

/// Gradients with their names.
pub fn results<T, P, S>(grads: Grads<T, P>) -> Values<T, P, S> {
    let params = [
        grads.diff_gamma.map(|values| ("diff_gamma", values)),
        grads.diff_beta.map(|values| ("diff_beta", values)),
    ];
    let diff_residual = grads.diff_residual.map(|values| ("diff_residual", values));
    let diff_src = std::iter::once(("diff_src", grads.diff_src));
    Values {
        data: diff_src.chain(diff_residual).collect(),
        params: params.into_iter().flatten().collect(),
        statistics: vec![],
        mask: None,
    }
}

/// The reference's gradients with their names.
pub fn expected(want: Gradients) -> Vec<Expected> {
    vec![
        Expected::new("diff_src", want.diff_src, want.diff_src_scale),
        Expected::new("diff_gamma", want.diff_gamma, want.diff_gamma_scale),
        Expected::new("diff_beta", want.diff_beta, want.diff_beta_scale),
    ]
}
