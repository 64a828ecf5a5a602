//! Tiles and windows of the reduction and the elementwise pass over rows that registers do not hold, or for which the
//! adapter allows too few bindings.

use super::choose::RowsOf;
use super::finish::Partials;
use super::rounds::Rounds;
use super::rows::{Rows, Walk};
use super::tensors::Tensors;
use super::windows::{Window, windows};
use super::workspace::{Region, Workspace};
use super::{Binding, Dispatch, MAX_SEQUENTIAL, Planner, Requirement, div_ceil, word};
use crate::Error;
use crate::kernels::{RowsApply, RowsApplyUniforms, RowsReduce, RowsReduceUniforms};
use std::ops::Range;

/// The most vec4s of a row that an invocation holds: more were not faster on the software drivers measured. And the
/// fewest: with fewer, partial sums of rows would be as many bytes as the rows.
const MOST_VEC4S: u32 = 8;
const FEWEST_VEC4S: u32 = 4;

/// Storage buffers of the kernels that write the parameters' gradients.
const WITH_PARAM_GRADS: u32 = 6;

/// Rows cut into tiles: the rows of a walk by a workgroup's vectors of columns.
pub(crate) struct SplitRows {
    rows: Rows,
    walk: Walk,
    column_tiles: u64,
    /// Whether each sample has parameters of its own.
    of_samples: bool,
    /// Neighbouring invocations in a row that write one partial sum of it.
    threads_per_partial: u64,
    /// Whether a workgroup walks all rows, and writes the parameters' gradients.
    direct: bool,
    /// The rounds of the partial sums of columns, where it does not.
    rounds: Rounds,
}

impl SplitRows {
    /// Whether the sums of rows are added up by a dispatch of their own.
    pub fn has_means(&self) -> bool {
        partials_per_row(&self.rows, self.threads_per_partial) > 1
    }

    /// Sums of each column that a split of the rows leaves.
    fn partials_of_a_split(&self) -> u64 {
        match self.walk.add_thread_rows {
            true => 1,
            false => self.rows.at_once(),
        }
    }

    /// Records of one of them: two columns share one, but not where parameters of samples begin inside a vec4.
    fn records_of_a_partial(&self) -> u64 {
        if self.of_samples && !self.rows.aligned() {
            return self.rows.columns;
        }
        self.rows.columns.next_multiple_of(4) / 2
    }

    /// The partial sums of columns that `splits` splits of the rows leave.
    fn column_partials(&self, region: Region, splits: u64) -> Partials {
        if self.of_samples {
            return (self.walk).sample_partials(&self.rows, region, self.partials_of_a_split());
        }
        let columns = word(self.rows.columns);
        let stride = self.rows.columns.next_multiple_of(4) / 2;
        Partials {
            partial_stride: stride,
            ..Partials::paired(region, columns, splits * self.partials_of_a_split())
        }
    }
}

/// The locations of gamma and beta, and the gate that those in their own buffers are multiplied by.
#[derive(Clone, Copy)]
pub(crate) struct RowParams {
    gamma: Place,
    beta: Place,
    gate: Place,
}

impl RowParams {
    /// Whether elements are scaled, or shifted.
    pub fn is_scaled(&self) -> bool {
        self.gamma.is_some() || self.gate.is_some()
    }

    pub fn is_offset(&self) -> bool {
        self.beta.is_some()
    }

    /// The first records of gamma, and of beta, in the workspace.
    pub fn weights(&self) -> u32 {
        self.gamma.first()
    }

    pub fn offsets(&self) -> u32 {
        self.beta.first()
    }

    pub fn bindings(&self) -> impl Iterator<Item = Binding> {
        [self.gamma, self.beta, self.gate]
            .into_iter()
            .filter_map(Place::binding)
    }

    /// Whether they are in the workspace.
    pub fn weighted(&self) -> bool {
        let packed = |place| matches!(place, Place::Packed(_));
        packed(self.gamma) || packed(self.beta)
    }
}

/// The location of gamma or beta.
#[derive(Clone, Copy)]
enum Place {
    /// There is no such tensor.
    None,
    /// In its own buffer.
    Bound(Requirement),
    /// In the workspace, where an adapter binds too few buffers.
    Packed(Region),
}

impl Place {
    fn of(param: Option<&Requirement>) -> Self {
        param.map_or(Self::None, |param| Self::Bound(*param))
    }

    fn binding(self) -> Option<Binding> {
        match self {
            Self::Bound(param) => Some(Binding::whole(&param)),
            _ => None,
        }
    }

    fn is_some(self) -> bool {
        !matches!(self, Self::None)
    }

    /// The first record in the workspace.
    fn first(self) -> u32 {
        match self {
            Self::Packed(region) => region.first,
            _ => 0,
        }
    }
}

/// A reduction of rows and columns.
pub(crate) struct Reduced {
    pub dispatches: Vec<Dispatch>,
    /// Partial sums of rows, where they have several.
    pub of_rows: Option<Partials>,
    /// Partial sums of columns, if the reduction does not write their sums.
    pub of_columns: Option<Partials>,
}

/// The buffers that an elementwise pass binds besides gamma and beta: the workspace, and the tensors that it reads and
/// writes element by element.
pub(super) fn elementwise(tensors: &Tensors) -> usize {
    1 + tensors.inputs.len() + tensors.outputs.len()
}

/// Neighbouring invocations whose sums of a row are added up before they are written, where no subgroup can do that and
/// barriers are cheap.
pub(super) const THREADS_PER_PARTIAL: u64 = 16;

impl Planner<'_> {
    /// Cuts rows, with room for the sums that `tensors` ask for. `direct` says whether the sums of columns have no
    /// other rows than these.
    pub fn split_rows(&self, problem: &RowsOf, direct: bool) -> SplitRows {
        let RowsOf {
            by_row,
            tensors,
            rows_of_a_sample,
        } = problem;
        let tuning = &self.profile.tuning;
        let most = tuning.row_vec4s.clamp(FEWEST_VEC4S, MOST_VEC4S);
        let (room, for_rows) = if rows_of_a_sample.is_some() {
            let few = self.few_records(&tensors.src);
            let few = few.saturating_sub(self.copied_params(tensors)) / 8 * 7;
            let few = few.max(1);
            (few, few / 4)
        } else {
            let rows = u64::from(by_row.channels);
            let for_rows = self.allowed_records(&tensors.src, rows) / 4;
            (self.partial_records(&tensors.src, rows), for_rows)
        };
        let mut workgroup_size = self.workgroup(tuning.workgroup);
        // As few invocations to a row as possible, so that it has the fewest partial sums.
        let mut rows = self.rows(by_row, workgroup_size, 1, most);
        let mut threads_per_partial = match self.subgroup(workgroup_size) {
            0 if self.cheap_barriers() => THREADS_PER_PARTIAL,
            0 => 1,
            subgroup => subgroup,
        };
        threads_per_partial = threads_per_partial.clamp(1, rows.threads_per_row);
        let row_records = |rows: &Rows, threads_per_partial| {
            rows.rows * partials_per_row(rows, threads_per_partial)
        };
        // Fewer partial sums of rows, each of more elements, if there is no room for them besides those of each column:
        // a split's, a block of rounds', and the totals.
        let of_columns = match tensors.param_grads() {
            true => 3 * (rows.columns.next_multiple_of(4) / 2),
            false => 0,
        };
        let held = self.held_records(2 * rows.rows).saturating_sub(of_columns);
        let for_rows = held.min(for_rows);
        while row_records(&rows, threads_per_partial) > for_rows
            && threads_per_partial < rows.threads_per_row
        {
            threads_per_partial *= 2;
        }
        while row_records(&rows, threads_per_partial) > for_rows
            && partials_per_row(&rows, threads_per_partial) > 1
            && self.workgroup(2 * workgroup_size) > workgroup_size
        {
            workgroup_size *= 2;
            rows = self.rows(by_row, workgroup_size, 1, most);
            threads_per_partial = rows.threads_per_row;
        }
        if row_records(&rows, threads_per_partial) > for_rows
            && partials_per_row(&rows, threads_per_partial) > 1
            && most < MOST_VEC4S
        {
            rows = self.rows(by_row, workgroup_size, 1, MOST_VEC4S);
            threads_per_partial = rows.threads_per_row;
        }
        let room = room
            .saturating_sub(row_records(&rows, threads_per_partial))
            .max(1);
        let column_tiles = div_ceil(rows.row_vectors(), rows.tile_vectors());
        let mut split = SplitRows {
            walk: self
                .walk_of_split(&rows, column_tiles)
                .of_samples(*rows_of_a_sample),
            column_tiles,
            of_samples: rows_of_a_sample.is_some(),
            threads_per_partial,
            direct: direct && rows_of_a_sample.is_none() && tensors.gate.is_none(),
            rounds: Rounds::new(0, 0, 0, 0),
            rows,
        };
        self.make_room(&mut split, tensors, room);
        split
    }

    /// Walks rows one after another, wherever they begin in a vec4.
    fn walk_of_split(&self, rows: &Rows, column_tiles: u64) -> Walk {
        let at_once = rows.at_once();
        let walked = self.walked(rows, column_tiles, at_once).max(1);
        Walk {
            step: at_once,
            misalignments: 1,
            tile_rows: walked * at_once,
            param_rows: rows.rows,
            add_thread_rows: at_once > 1 && self.adds_up_walks(walked),
        }
    }

    /// Makes walks longer where there is no room for the sums of columns, a single walk if that is possible; else makes
    /// rounds.
    fn make_room(&self, split: &mut SplitRows, tensors: &Tensors, room: u64) {
        let rows = &split.rows;
        if !tensors.param_grads() {
            split.direct = false;
            split.rounds = Rounds::new(split.walk.splits(rows), 0, 0, room);
            return;
        }
        let records = split.records_of_a_partial();
        let needed = |split: &SplitRows| {
            split.walk.splits(&split.rows) * split.partials_of_a_split() * records
        };
        if needed(split) > room {
            split.walk.add_thread_rows = rows.at_once() > 1;
        }
        if needed(split) > room {
            let held = self.held_unit() / (rows.columns * rows.at_once());
            let longest = div_ceil(split.walk.param_rows, rows.at_once()).min(MAX_SEQUENTIAL);
            let fitting = div_ceil(rows.rows * records, room * rows.at_once());
            let before = split.walk.tile_rows / rows.at_once();
            let walked = fitting.min(longest).min(held).max(before);
            split.walk.tile_rows = walked * rows.at_once();
        }
        let bound = tensors.src.padded_bytes() + 2 * self.profile.alignment.max(256);
        let single = split.walk.splits(rows) == 1 || {
            let all = div_ceil(rows.rows, rows.at_once());
            needed(split) > room && all <= MAX_SEQUENTIAL
        };
        split.direct &= single
            && bound <= self.profile.window_limit().1
            && self.profile.max_storage_buffers >= WITH_PARAM_GRADS;
        if split.direct {
            split.walk.tile_rows = rows.rows.next_multiple_of(rows.at_once());
            split.walk.add_thread_rows = rows.at_once() > 1;
        }
        let records = match split.direct {
            true => 0,
            false => records * split.partials_of_a_split(),
        };
        split.rounds = Rounds::new(
            split.walk.splits(rows),
            records,
            self.subtotal_records(word(rows.columns)),
            // Sums of samples are not added up in rounds.
            if split.of_samples { u64::MAX } else { room },
        );
    }

    /// Records of the parameters' copies in the workspace, where an adapter binds too few buffers.
    pub fn copied_params(&self, tensors: &Tensors) -> u64 {
        let bound = elementwise(tensors) + tensors.params().count();
        let copies = tensors.params().map(|param| div_ceil(param.elements, 4));
        if self.more_bindings_than_allowed(bound).is_some() {
            return copies.sum();
        }
        0
    }

    /// The locations of gamma and beta for the kernels over split rows, and the dispatches that copy them to the
    /// workspace if they have to be there: with `others` that the kernels bind, an adapter may bind too few buffers.
    pub fn row_params(
        &self,
        tensors: &Tensors,
        others: usize,
        workspace: &mut Workspace,
    ) -> Result<(RowParams, Vec<Dispatch>), Error> {
        let bound = others + tensors.params().count() <= self.profile.max_storage_buffers as usize;
        if bound {
            let params = RowParams {
                gamma: Place::of(tensors.gamma.as_ref()),
                beta: Place::of(tensors.used_beta()),
                gate: Place::of(tensors.gate.as_ref()),
            };
            return Ok((params, vec![]));
        }
        let mut dispatches = Vec::new();
        let mut packed = |param: Option<&Requirement>, of_beta: bool| -> Result<Place, Error> {
            let Some(param) = param else {
                return Ok(Place::None);
            };
            let with_gate = u64::from(tensors.gate.is_some() && !of_beta);
            let region = workspace.reserve(div_ceil(param.elements, 4) * (1 + with_gate))?;
            dispatches.push(self.pack_weights(param, tensors.gate.as_ref(), of_beta, region)?);
            Ok(Place::Packed(region))
        };
        let params = RowParams {
            // Without gamma, the gate is the scale.
            gamma: packed(tensors.gamma.as_ref().or(tensors.gate.as_ref()), false)?,
            beta: packed(tensors.used_beta(), true)?,
            gate: Place::None,
        };
        Ok((params, dispatches))
    }

    /// The reduction of rows and columns.
    pub fn rows_reduce(
        &self,
        split: &SplitRows,
        tensors: &Tensors,
        stats: Region,
        params: RowParams,
        workspace: &mut Workspace,
    ) -> Result<Reduced, Error> {
        let rows = &split.rows;
        let partials_per_row = partials_per_row(rows, split.threads_per_partial);
        let of_rows = match partials_per_row {
            1 => None,
            _ => Some(Partials {
                channel_stride: partials_per_row,
                ..Partials::plain(
                    workspace.reserve(rows.rows * partials_per_row)?,
                    word(rows.rows),
                    partials_per_row,
                    1,
                )
            }),
        };
        let kernel = RowsReduce {
            threads_per_row: word(rows.threads_per_row),
            threads_per_partial: word(split.threads_per_partial),
            column_vectors: word(rows.column_vectors),
            vector_vec4s: word(rows.vector_vec4s),
            one_partial: partials_per_row == 1,
            aligned: rows.aligned(),
            complete: rows.complete(),
            of_samples: split.of_samples,
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            summed: tensors.param_grads(),
            add_thread_rows: split.walk.add_thread_rows && tensors.param_grads(),
            direct: split.direct,
        };
        let reduce = |region: Region, splits: Range<u64>| {
            let windows = self.windows_of_rows(split, tensors, splits)?;
            let kernel = (kernel, rows.workgroup_size);
            self.over(&windows, &tensors.src, kernel, |window, range| {
                let mut bindings = tensors.reduced(window);
                bindings.extend(params.bindings());
                bindings.push(Binding::workspace());
                if split.direct {
                    bindings.extend(tensors.result_bindings());
                }
                let uniforms = RowsReduceUniforms {
                    tiles: split.walk.uniforms(rows, window, range),
                    column_tiles: word(split.column_tiles),
                    partials_per_row: word(partials_per_row),
                    stats: stats.first,
                    weights: params.weights(),
                    offsets: params.offsets(),
                    row_partials: of_rows.as_ref().map_or(0, |sums| sums.region.first),
                    partials: region.first,
                    inverse_count: 1.0 / rows.columns.max(1) as f64,
                };
                (bindings, uniforms)
            })
        };
        let (dispatches, of_columns) =
            self.in_rounds(&split.rounds, workspace, reduce, |region, splits| {
                split.column_partials(region, splits)
            })?;
        let unfinished = tensors.param_grads() && !split.direct;
        Ok(Reduced {
            dispatches,
            of_rows,
            of_columns: unfinished.then_some(of_columns),
        })
    }

    /// The elementwise pass over rows.
    pub fn rows_apply(
        &self,
        split: &SplitRows,
        tensors: &Tensors,
        stats: Region,
        means: Option<Region>,
        params: RowParams,
    ) -> Result<Vec<Dispatch>, Error> {
        let rows = &split.rows;
        let kernel = RowsApply {
            threads_per_row: word(rows.threads_per_row),
            column_vectors: word(rows.column_vectors),
            vector_vec4s: word(rows.vector_vec4s),
            one_partial: means.is_none(),
            aligned: rows.aligned(),
            complete: rows.complete(),
            of_samples: split.of_samples,
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            narrow: rows.columns < 4,
            whole: rows.elements().is_multiple_of(rows.vector()),
        };
        let params_bound: Vec<_> = params.bindings().collect();
        let (read, written) = (&tensors.inputs, &tensors.outputs);
        let bound = read.len() + params_bound.len() + 1 + written.len();
        // Outputs are written one after another where the adapter binds too few buffers for both.
        let at_once = match bound <= self.profile.max_storage_buffers as usize {
            true => written.len(),
            false => 1,
        };
        let windows = self.windows_of_rows(split, tensors, 0..split.walk.splits(rows))?;
        let kernel = (kernel, rows.workgroup_size);
        let mut dispatches = Vec::new();
        for written in written.chunks(at_once) {
            let pass = self.over(&windows, &tensors.src, kernel, |window, range| {
                let mut bindings: Vec<_> = read.iter().map(|tensor| window.bind(tensor)).collect();
                bindings.extend(params_bound.iter().cloned());
                bindings.push(Binding::workspace());
                bindings.extend(written.iter().map(|tensor| window.bind(tensor)));
                let uniforms = RowsApplyUniforms {
                    tiles: split.walk.uniforms(rows, window, range),
                    column_tiles: word(split.column_tiles),
                    stats: stats.first,
                    means: means.map_or(0, |region| region.first),
                    weights: params.weights(),
                    offsets: params.offsets(),
                };
                (bindings, uniforms)
            })?;
            dispatches.extend(pass);
        }
        Ok(dispatches)
    }

    /// The windows of some splits.
    fn windows_of_rows(
        &self,
        split: &SplitRows,
        tensors: &Tensors,
        splits: Range<u64>,
    ) -> Result<Vec<Window>, Error> {
        let (rows, walk) = (&split.rows, &split.walk);
        // Between two cuts: the rows of a tile, or where that is one row, a tile of its columns.
        let split_tiles = split.column_tiles;
        let unit_tiles = if walk.tile_rows == 1 { 1 } else { split_tiles };
        let units = splits.start * split_tiles / unit_tiles..splits.end * split_tiles / unit_tiles;
        let start = |unit: u64| {
            let (block, tile) = match unit_tiles {
                1 => (unit / split_tiles, unit % split_tiles),
                _ => (unit, 0),
            };
            let first = walk.start(rows, block);
            // Not past the row's end: its last tile may hold only a vec4 that begins in the next row.
            let inside = (tile * rows.tile_vectors() * rows.vector()).min(rows.columns);
            (first + inside).min(rows.elements())
        };
        windows(self.profile, &tensors.src, units, unit_tiles, start)
    }
}

/// The number of partial sums of a row, from all invocations that hold some of it.
fn partials_per_row(rows: &Rows, threads_per_partial: u64) -> u64 {
    let before = div_ceil(rows.row_vectors(), rows.tile_vectors()).saturating_sub(1);
    let rest = rows.row_vectors() - before * rows.tile_vectors();
    let invocations = before * rows.threads_per_row + rest.min(rows.threads_per_row);
    div_ceil(invocations, threads_per_partial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Problem;
    use crate::{Backward, DType, Norm, Operation, Profile, Tuning};

    #[test]
    fn pieces_of_rows_are_walked_few_at_a_time() {
        let profile = Profile {
            tuning: Tuning::SOFTWARE,
            ..Profile::usual()
        };
        let planner = Planner {
            body: crate::kernels::Body::Gradient,
            profile: &profile,
            data: DType::F32,
            epilogue: crate::kernels::Epilogue::default(),
        };
        let split = |rows, columns| {
            let norm = Norm::Layer {
                begin_norm_axis: -1,
            };
            let shape = [rows, columns];
            let operation = Operation::new(norm, Backward::default(), &shape, DType::F32);
            let problem = Problem::new(&operation);
            let rows = RowsOf {
                by_row: problem.axes.by_row(),
                tensors: problem.tensors(),
                rows_of_a_sample: None,
            };
            planner.split_rows(&rows, true)
        };
        let long = split(512, 4096);
        assert!(long.column_tiles > 1);
        assert_eq!(long.walk.tile_rows, 16);
        // There are so many rows that the sums of columns would outgrow a binding.
        assert_eq!(split(65536, 8192).walk.tile_rows, 192);
        assert_eq!(split(512, 4097).walk.tile_rows, 16);
        // Each row has one partial sum: wider workgroups would not leave fewer.
        assert_eq!(split(200_000, 3).rows.workgroup_size, 8);
        let uncut = split(4096, 128);
        assert_eq!(uncut.column_tiles, 1);
        assert!(uncut.walk.tile_rows > 16 * uncut.rows.at_once());
    }
}
