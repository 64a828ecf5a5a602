//! The parameters that kernels over rows and columns load themselves: from their own buffers, or from copies in the
//! workspace, where an adapter binds too few buffers.

use super::pack::PACK_WORKGROUP;
use crate::kernels::{PackWeights, PackWeightsUniforms};
use crate::plan::dispatch::{Binding, Dispatch, Requirement};
use crate::plan::limits::Unfit;
use crate::plan::planner::Planner;
use crate::plan::sizes::{div_ceil, word};
use crate::plan::workspace::{Region, Workspace};

/// The locations of parameters.
#[derive(Clone, Default)]
pub(crate) struct LoadedParams {
    /// Those in their own buffers.
    bound: Vec<Requirement>,
    /// The first records of the copies of gamma and the gate, and of beta.
    copies: Option<[u32; 2]>,
    /// Whether elements are scaled, or shifted.
    pub scaled: bool,
    pub offset: bool,
}

impl LoadedParams {
    pub fn bindings(&self) -> impl Iterator<Item = Binding> {
        self.bound.iter().map(Binding::whole)
    }

    /// Whether they are in the workspace.
    pub fn weighted(&self) -> bool {
        self.copies.is_some()
    }

    /// The first records of gamma, and of beta, in the workspace.
    pub fn weights(&self) -> u32 {
        self.copies.unwrap_or_default()[0]
    }

    pub fn offsets(&self) -> u32 {
        self.copies.unwrap_or_default()[1]
    }
}

impl Planner<'_> {
    /// The buffers that an elementwise pass binds besides parameters: the workspace, and the tensors that it reads and
    /// writes element by element.
    pub fn elementwise(&self) -> usize {
        1 + self.tensors.inputs.len() + self.tensors.outputs.len()
    }

    /// Records of the parameters' copies in the workspace, where an adapter binds too few buffers.
    pub fn copied_params(&self) -> u64 {
        let params = self.tensors.params();
        if self
            .profile
            .binds(self.elementwise() + params.clone().count())
        {
            return 0;
        }
        params.map(|param| div_ceil(param.elements, 4)).sum()
    }

    /// The locations of the parameters, and the dispatches that copy them to the workspace if they have to be there: with
    /// `others` that the kernels bind, an adapter may bind too few buffers.
    pub fn load_params(
        &self,
        others: usize,
        workspace: &mut Workspace,
    ) -> Result<(LoadedParams, Vec<Dispatch>), Unfit> {
        let tensors = self.tensors;
        let bound: Vec<_> = tensors.params().copied().collect();
        let mut params = LoadedParams {
            scaled: tensors.is_scaled(),
            offset: tensors.used_beta().is_some(),
            ..LoadedParams::default()
        };
        let mut dispatches = Vec::new();
        if bound.is_empty() || self.profile.binds(others + bound.len()) {
            params.bound = bound;
        } else {
            let copies = params.copies.insert([0, 0]);
            // Without gamma, the gate is the scale.
            let scale = tensors.gamma.as_ref().or(tensors.gate.as_ref());
            for (of_beta, (param, first)) in
                [scale, tensors.used_beta()].iter().zip(copies).enumerate()
            {
                let Some(param) = param else { continue };
                let of_beta = of_beta == 1;
                let with_gate = u64::from(tensors.gate.is_some() && !of_beta);
                let region = workspace.reserve(div_ceil(param.elements, 4) * (1 + with_gate))?;
                dispatches.push(self.pack_weights(param, of_beta, region)?);
                *first = region.first;
            }
        }
        Ok((params, dispatches))
    }

    /// Copies gamma and the gate, or beta, as reals.
    fn pack_weights(
        &self,
        param: &Requirement,
        of_beta: bool,
        weights: Region,
    ) -> Result<Dispatch, Unfit> {
        let gate = self.tensors.gate.as_ref();
        let gate = gate.filter(|gate| gate.tensor != param.tensor && !of_beta);
        let read = [param].into_iter().chain(gate).map(Binding::whole);
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let vec4s = div_ceil(param.elements, 4);
        let tiles = div_ceil(vec4s, u64::from(workgroup_size));
        let workgroups = self.profile.workgroups(tiles)?;
        Ok(self.dispatch(
            PackWeights { of_beta },
            workgroup_size,
            read.chain([Binding::workspace()]).collect(),
            &PackWeightsUniforms {
                columns: word(param.elements),
                weights: weights.first,
                grid_width: workgroups[0],
            },
            workgroups,
        ))
    }
}
