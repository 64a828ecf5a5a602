//! Walks: how a reduction and an elementwise pass over channels go through the tensors.

use super::Dispatch;
use super::finish::Partials;
use super::tensors::{Applied, Tensors};
use super::workspace::{Region, Workspace};
use crate::Error;

/// A way through the tensors.
pub(crate) trait Walk {
    /// The reduction to partial sums. `stats` has the records of channels that are known before.
    fn reduce(
        &self,
        tensors: &Tensors,
        stats: Region,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error>;

    /// The elementwise pass.
    fn apply(&self, tensors: &Tensors, applied: Applied) -> Result<Vec<Dispatch>, Error>;
}
