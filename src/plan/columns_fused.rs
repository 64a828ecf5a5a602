//! A forward pass over columns in one reading, where registers hold them.

use super::axes::ByColumn;
use super::columns::Tiles;
use super::columns_cut::{Division, pieces_of};
use super::rows::vectors_held;
use super::tensors::Tensors;
use super::workspace::Workspace;
use super::{Binding, Dispatch, Planner, check_dispatches, div_ceil, most_vectors, word};
use crate::Error;
use crate::kernels::{Body, ColumnsFused, ColumnsFusedUniforms, Scalars};

/// The fewest vec4s side by side in a row that a workgroup reads: a sector of memory.
const FEWEST_VEC4S: u64 = 4;

/// The tensors that the kernel binds besides gamma, beta and gate.
fn bound_besides_params(tensors: &Tensors) -> usize {
    tensors.inputs.len() + tensors.outputs.len() + tensors.results.len()
}

impl Planner<'_> {
    /// The planner with the body that computes statistics of what registers hold.
    pub(super) fn in_registers(&self) -> Self {
        Self {
            body: match self.body {
                Body::Forward => Body::RowsForward,
                body => body,
            },
            ..*self
        }
    }

    /// Why a workgroup's registers cannot hold columns, if they cannot.
    pub fn columns_in_registers_unsupported_reason(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
    ) -> Option<String> {
        if self.body.is_gradient() || self.body.is_inference() {
            return Some("it is no forward pass by the statistics of src".to_owned());
        }
        if let Some(reason) = self.whole_columns_unsupported_reason(of, tensors) {
            return Some(reason);
        }
        if self.columns_held(of).is_none() {
            return Some(format!(
                "{} elements of a column are more than a workgroup's registers hold",
                of.rows
            ));
        }
        let workspace = usize::from(tensors.params().count() > 0);
        self.more_bindings_than_allowed(workspace + bound_besides_params(tensors))
    }

    /// How workgroups hold columns, and the rows that an invocation holds: the widest pieces of rows with which
    /// registers hold all rows.
    pub(super) fn columns_held(&self, of: &ByColumn) -> Option<(Division, u64)> {
        let tuning = &self.profile.tuning;
        let planner = self.in_registers();
        let sizes = [tuning.workgroup, tuning.fused_workgroup].map(|size| planner.workgroup(size));
        // With two vec4s, NVIDIA's compiler keeps what an invocation holds in memory, which takes four times as long.
        let vector_vec4s = 1;
        let width_vectors = div_ceil(of.columns.into(), 4).max(1);
        let most = most_vectors(planner.row_vec4s(), vector_vec4s);
        let widest = u64::from(tuning.channels_last_threads.max(1));
        let mut threads_per_row = (1 << widest.ilog2()).min(width_vectors.next_power_of_two());
        let fewest = FEWEST_VEC4S.min(threads_per_row);
        while threads_per_row >= fewest {
            for size in sizes.map(u64::from) {
                let at_once = size / threads_per_row.min(size);
                let held = vectors_held(of.rows.into(), at_once, most);
                if held <= most && threads_per_row <= size {
                    let division = Division {
                        workgroup_size: word(size),
                        threads_per_row,
                        vector_vec4s,
                        column_vectors: 1,
                        tile_rows: of.rows.into(),
                    };
                    return Some((division, held));
                }
            }
            threads_per_row /= 2;
        }
        None
    }

    /// The whole pass.
    pub(super) fn columns_in_registers(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        scalars: Scalars,
        workspace: &mut Workspace,
    ) -> Result<Vec<Dispatch>, Error> {
        let planner = self.in_registers();
        let (params, mut dispatches) =
            self.row_params(tensors, bound_besides_params(tensors), workspace)?;
        let Some((division, held_rows)) = self.columns_held(of) else {
            return Ok(dispatches);
        };
        let kernel = ColumnsFused {
            threads_per_row: word(division.threads_per_row),
            column_vectors: 1,
            held_rows: word(held_rows),
            vector_vec4s: word(division.vector_vec4s),
            aligned: of.is_aligned(),
            shares_words: self.shares_words(of),
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            of_samples: of.of_samples,
            add_thread_rows: division.at_once() > 1,
        };
        for piece in &pieces_of(of, &(0..of.statistics()), division.tile_columns()) {
            let tiles = Tiles {
                piece,
                row_tiles: 0..1,
                tile_rows: of.rows.into(),
                walked_tiles: 1,
                stats: 0,
            };
            let shares = self.shares_of_columns(of, tensors, &tiles)?;
            let kernel = (kernel, division.workgroup_size);
            dispatches.extend(planner.over(&shares, &tensors.src, kernel, |share, range| {
                let (window, inputs) = (&share.window, tensors.inputs.iter());
                let mut bindings: Vec<_> = inputs.map(|tensor| window.bind(tensor)).collect();
                bindings.extend(params.bindings());
                if params.weighted() {
                    bindings.push(Binding::workspace());
                }
                bindings.extend(tensors.outputs.iter().map(|tensor| window.bind(tensor)));
                bindings.extend(tensors.result_bindings());
                let tiles = share.uniforms(of, &tiles, params, range);
                (bindings, ColumnsFusedUniforms { tiles, scalars })
            })?);
            check_dispatches(dispatches.len() as u64)?;
        }
        Ok(dispatches)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{Algorithm, DType, Forward, Norm, Operation, Profile};

    #[test]
    fn batches_beyond_a_window_are_read_twice() {
        let norm = Norm::Axes {
            axes: vec![1],
            param_axes: vec![1],
            centered: true,
        };
        let forward =
            |dtype| Operation::new(norm.clone(), Forward::default(), &[2, 96, 1 << 20], dtype);
        let algorithm = |dtype, max_window| {
            let profile = Profile {
                max_window,
                max_binding: 1 << 31,
                ..Profile::usual()
            };
            forward(dtype).planned(&profile).unwrap().algorithm
        };
        assert_eq!(
            algorithm(DType::F32, 1 << 29),
            Algorithm::ColumnsInRegisters
        );
        assert_eq!(
            algorithm(DType::F32, 300 << 20),
            Algorithm::ColumnsReadTwice
        );
    }
}
