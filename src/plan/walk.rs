//! Walks: how a reduction and an elementwise pass over channels go through the tensors.

use super::axes::Layout;
use super::channels_first::Planes;
use super::channels_last::ChannelsLast;
use super::finish::Partials;
use super::tensors::{Applied, Tensors};
use super::workspace::{Region, Workspace};
use super::{Dispatch, Planner, Requirement};
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

impl<'a> Planner<'a> {
    /// The walk over a layout, in planes or in rows of columns. The reduction of `one_pass` may write diff_src, too.
    pub fn walk_over(
        &self,
        planes: bool,
        layout: &'a Layout,
        src: &'a Requirement,
        one_pass: bool,
    ) -> Box<dyn Walk + 'a> {
        let planner = *self;
        if planes {
            return Box::new(Planes {
                planner,
                layout,
                src,
                one_pass,
            });
        }
        Box::new(ChannelsLast {
            planner,
            layout,
            src,
        })
    }
}
