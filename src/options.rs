//! The choices that an operator's caller makes.

use crate::{DType, Error};
use std::fmt;

/// Where the channel axis stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataFormat {
    /// `(N, C, …)`: axis 1 is the channel.
    Ncx,
    /// `(N, …, C)`: the last axis is the channel. The default of oneDNN Graph's document.
    #[default]
    Nxc,
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ncx => "NCX",
            Self::Nxc => "NXC",
        })
    }
}

/// What mean and variance are to the gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Statistics {
    /// They were computed from `src`, so the gradient flows through them (training).
    #[default]
    Batch,
    /// They are constants: `diff_src = diff_dst · gamma / sqrt(variance + epsilon)`.
    Constant,
}

/// Which parameter gradients are computed, and whether gamma counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ParamGrads {
    /// `diff_gamma` and `diff_beta`; gamma scales `diff_src`.
    #[default]
    Both,
    /// No parameter gradients, and **a given gamma is ignored**: oneDNN Graph's rule for a call of batch norm
    /// that asks for neither output. Its layer norm has no such rule: take [`Frozen`](Self::Frozen).
    Neither,
    /// No parameter gradients, but gamma still scales `diff_src`: a frozen layer, as other
    /// frameworks treat it.
    Frozen,
}

/// epsilon, checked in the type that it is used in.
pub(crate) fn check_epsilon(epsilon: f64, data: DType) -> Result<(), Error> {
    // An adapter may take a subnormal for 0.
    let (used, normal) = match data.accumulator() {
        DType::F64 => (epsilon, epsilon.is_normal()),
        _ => (f64::from(epsilon as f32), (epsilon as f32).is_normal()),
    };
    if normal && used > 0.0 {
        Ok(())
    } else {
        Err(Error::Epsilon {
            got: epsilon,
            used,
            dtype: data.accumulator(),
        })
    }
}
