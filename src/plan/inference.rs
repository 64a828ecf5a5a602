//! Forward passes by given statistics.

use super::Planner;
use super::passes::Slice;
use super::problem::{Family, Problem};
use super::tensors::{Applied, Tensors};
use super::workspace::Workspace;
use crate::Error;

impl Planner<'_> {
    /// Gathers the coefficients of each channel, then does the elementwise pass.
    pub(super) fn inference(
        &self,
        problem: &Problem,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        match problem.family {
            Family::Rows => return self.rows_forward(problem, workspace),
            Family::Columns(of) => {
                return self.over_all_columns(problem, &of, tensors, workspace);
            }
            Family::Channels | Family::Groups => {}
        }
        let layout = &problem.axes.layout();
        let algorithm = self.choose_channels(problem, tensors)?;
        if problem.axes.elements() == 0 {
            workspace.reserve(0)?;
            return Ok(Slice::whole(algorithm, vec![]));
        }
        let stats = workspace.reserve(layout.grid.channels.into())?;
        let mut dispatches = match problem.family {
            Family::Groups => {
                self.pack_groups(&problem.axes.groups(), tensors, problem.epsilon, stats)?
            }
            _ => {
                let params: Vec<_> = tensors.params().copied().collect();
                self.pack_statistics(tensors, &params, problem.epsilon, stats)?
            }
        };
        let applied = Applied {
            src: true,
            stats,
            means: None,
            samples: None,
        };
        let planes = layout.walks_planes(algorithm);
        let walk = self.walk_over(planes, layout, &tensors.src, false);
        dispatches.extend(self.apply(&*walk, layout, tensors, applied)?);
        Ok(Slice::whole(algorithm, dispatches))
    }
}
