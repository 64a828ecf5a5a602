//! The parameters that kernels over rows and columns load themselves: from their own buffers, or from copies in the
//! workspace, where an adapter binds too few buffers.

use super::pack::PACK_WORKGROUP;
use crate::Tensor;
use crate::kernels::{PackWeights, PackWeightsUniforms};
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
    /// Whether they are in the workspace instead: the first records of gamma and the gate, and of beta.
    pub weighted: bool,
    pub weights: u32,
    pub offsets: u32,
    /// Whether elements are scaled, or shifted.
    pub scaled: bool,
    pub offset: bool,
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
        let bound = self.elementwise() + params.clone().count();
        if self.profile.binds(bound) {
            return 0;
        }
        params.map(|param| div_ceil(param.elements, 4)).sum()
    }

    /// The locations of the parameters, and the dispatches that copy them to the workspace if they have to be there:
    /// with `others` that the kernels bind, an adapter may bind too few buffers.
    pub fn load_params(
        &self,
        others: usize,
        workspace: &mut Workspace,
    ) -> Result<(LoadedParams, Vec<Dispatch>), Unfit> {
        let tensors = self.tensors;
        let bindings: Vec<_> = tensors.params().map(Binding::whole).collect();
        let mut params = LoadedParams {
            scaled: tensors.is_scaled(),
            offset: tensors.used_beta().is_some(),
            ..LoadedParams::default()
        };
        let mut copies = Vec::new();
        if bindings.is_empty() || self.profile.binds(others + bindings.len()) {
            params.bindings = bindings;
            return Ok((params, copies));
        }
        params.weighted = true;
        // Without gamma, the gate is the scale.
        if let Some(scale) = tensors.gamma.as_ref().or(tensors.gate.as_ref()) {
            params.weights = self.pack_weights(scale, workspace, &mut copies)?;
        }
        if let Some(beta) = tensors.used_beta() {
            params.offsets = self.pack_weights(beta, workspace, &mut copies)?;
        }
        Ok((params, copies))
    }

    /// Copies gamma and the gate by turns, or beta, as reals; and the first record of the copy.
    fn pack_weights(
        &self,
        param: &Requirement,
        workspace: &mut Workspace,
        dispatches: &mut Vec<Dispatch>,
    ) -> Result<u32, Unfit> {
        let of_beta = param.tensor == Tensor::Beta;
        let gate = self.tensors.gate.as_ref().filter(|_| !of_beta);
        let vec4s = div_ceil(param.elements, 4);
        let weights = workspace.reserve(vec4s * (1 + u64::from(gate.is_some())))?;
        let workgroup_size = self.workgroup(PACK_WORKGROUP);
        let tiles = div_ceil(vec4s, u64::from(workgroup_size));
        let workgroups = self.profile.workgroups(tiles)?;
        let others = gate.filter(|gate| gate.tensor != param.tensor);
        let read = [param].into_iter().chain(others).map(Binding::whole);
        let bindings = read.chain([Binding::workspace()]).collect();
        let uniforms = PackWeightsUniforms {
            columns: word(param.elements),
            weights: weights.first,
            grid_width: workgroups[0],
        };
        let kernel = PackWeights { of_beta };
        dispatches.push(self.dispatch(kernel, workgroup_size, bindings, &uniforms, workgroups));
        Ok(weights.first)
    }
}
