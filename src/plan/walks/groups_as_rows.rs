//! Groups that are each a row of the tensor: their statistics are taken as those of rows.

use super::channels_first::Planes;
use super::{Known, Reduced, Walk};
use crate::plan::dispatch::{Binding, Dispatch};
use crate::plan::limits::{Cannot, Unfit, check};
use crate::plan::planner::Planner;
use crate::plan::workspace::Workspace;

/// A walk over planes of groups, then over planes of channels, whose parameters are added to the records of groups.
pub(crate) struct GroupsAsRows<'a> {
    rows: Planes<'a>,
    channels: Planes<'a>,
    params: Vec<Binding>,
}

impl<'a> GroupsAsRows<'a> {
    pub fn new(planner: Planner<'a>) -> Result<Self, Cannot> {
        let (problem, tensors) = (planner.problem, planner.tensors);
        let is_forward = !problem.body.is_gradient() && !problem.is_inference();
        check(
            is_forward && problem.groups.are_rows() && tensors.mask.is_none(),
            "it is no forward pass without a mask over groups that are rows",
        )?;
        let bound = planner.elementwise() + tensors.params.len();
        planner.profile.check_bound(bound)?;
        Ok(Self {
            rows: Planes::over_rows(planner),
            channels: Planes::new(planner),
            params: tensors.params.iter().map(Binding::whole).collect(),
        })
    }
}

impl Walk for GroupsAsRows<'_> {
    fn reduce(&self, known: &Known, workspace: &mut Workspace) -> Result<Reduced, Unfit> {
        self.rows.reduce(known, workspace)
    }

    fn apply(&self, known: &Known) -> Result<Vec<Dispatch>, Unfit> {
        self.channels.apply(&Known {
            given: self.params.clone(),
            of_statistics: true,
            ..known.clone()
        })
    }
}
