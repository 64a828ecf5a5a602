//! The parameters that kernels over rows and columns load themselves: from their own buffers, or from copies in the
//! workspace, where an adapter binds too few buffers.

use super::pack::PACK_WORKGROUP;
use crate::kernels::{self, PackParams, PackParamsUniforms};
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::workspace::Workspace;

/// The locations of parameters.
#[derive(Clone, Default)]
pub(crate) struct LoadedParams {
    /// Those in their own buffers.
    pub bindings: Vec<Binding>,
    /// Those that are copies in the workspace instead, bit by bit, and the first record of the copies.
    pub copied: u32,
    pub copies: u32,
}

impl Planner<'_> {
    /// The buffers that an elementwise pass binds besides parameters: the workspace, and the tensors that it reads and
    /// writes element by element.
    pub fn elementwise(&self) -> usize {
        1 + self.tensors.inputs.len() + self.tensors.outputs.len()
    }

    /// Records of the parameters' copies in the workspace, where an adapter binds too few buffers.
    pub fn copied_params(&self) -> u64 {
        let params = &self.tensors.params;
        if self.profile.binds(self.elementwise() + params.len()) {
            return 0;
        }
        params.iter().map(records).sum()
    }

    /// The locations of the parameters, and the dispatches that copy them to the workspace if they have to be there:
    /// with `others` that the kernels bind, an adapter may bind too few buffers.
    pub fn load_params(
        &self,
        others: usize,
        workspace: &mut Workspace,
    ) -> Result<(LoadedParams, Vec<Dispatch>), Unfit> {
        let mut given = self.tensors.params.clone();
        // Kernels find a copy by the bits before its own.
        given.sort_by_key(|param| kernels::bit(param.tensor));
        let mut params = LoadedParams::default();
        if given.is_empty() || self.profile.binds(others + given.len()) {
            params.bindings = given.iter().map(Binding::whole).collect();
            return Ok((params, vec![]));
        }
        params.copied = given.iter().map(|param| kernels::bit(param.tensor)).sum();
        params.copies = workspace.reserve(given.iter().map(records).sum())?.first;
        let mut copy = params.copies;
        let mut copies = Vec::new();
        for param in &given {
            copies.push(self.pack_param(param, copy)?);
            copy += word(records(param));
        }
        Ok((params, copies))
    }

    /// Copies a parameter, as reals, to the records from `copy` on.
    fn pack_param(&self, param: &Requirement, copy: u32) -> Result<Dispatch, Unfit> {
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(records(param), workgroup_size.into());
        let workgroups = self.profile.workgroups(tiles)?;
        let uniforms = PackParamsUniforms {
            parameters: word(param.elements),
            copy,
            grid_width: workgroups[0],
        };
        let bindings = vec![Binding::whole(param), Binding::workspace()];
        Ok(self.dispatch(
            PackParams {},
            workgroup_size,
            bindings,
            &uniforms,
            workgroups,
        ))
    }
}

/// Records of a parameter's copy.
fn records(param: &Requirement) -> u64 {
    div_ceil(param.elements, 4)
}
