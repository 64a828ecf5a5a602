//! Groups that are each a row of the tensor: their statistics are taken as those of rows.

use super::channels_first::Planes;
use super::{Known, Reduced, Walk};
use crate::plan::dispatch::Dispatch;
use crate::plan::limits::{Cannot, Unfit, check};
use crate::plan::planner::Planner;
use crate::plan::workspace::Workspace;

/// A walk over planes of groups, then over planes of channels.
pub(crate) struct GroupsAsRows<'a> {
    rows: Planes<'a>,
    channels: Planes<'a>,
    planner: Planner<'a>,
}

impl<'a> GroupsAsRows<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let problem = planner.problem;
        let is_forward = !problem.body.is_gradient() && !problem.is_inference();
        check(
            is_forward && problem.groups.are_rows(),
            "it is no forward pass over groups that are rows",
        )?;
        Ok(Self {
            rows: Planes::over_rows(planner),
            channels: Planes::new(planner),
            planner,
        })
    }
}

impl Walk for GroupsAsRows<'_> {
    /// The elementwise pass can add parameters to the records of groups.
    fn bound_besides_given(&self) -> Option<usize> {
        let fits = self.channels.bound_besides_given();
        fits.map(|_| self.planner.elementwise())
    }

    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        self.rows.reduce(known, workspace)
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        self.channels.apply(known)
    }
}
