//! Norms over an axis that is not the last one, like layer norm over channels (NCX): statistics belong to columns,
//! parameters to rows. The sums of a forward pass are those of channels last; a gradient's reduction takes the sums of
//! columns and of rows in one reading. The elementwise pass has a column's statistics in registers and loads a row's
//! parameters.

use super::axes::ByColumn;
use super::finish::{Derived, Partials, Route};
use super::passes::Slice;
use super::problem::Problem;
use super::rounds::RunningSums;
use super::rows_split::{RowParams, THREADS_PER_PARTIAL, elementwise};
use super::tensors::Tensors;
use super::windows::{Window, windows};
use super::workspace::{Region, Workspace};
use super::{
    Binding, Dispatch, MAX_SEQUENTIAL, MOST_ITERATIONS, Planner, div_ceil, most_vectors, word,
};
use crate::kernels::{
    BatchTiles, ColumnsApply, ColumnsApplyUniforms, ColumnsReduce, ColumnsReduceUniforms, TileRange,
};
use crate::{Algorithm, Error};

/// The most vec4s of a row that an invocation has.
const MOST_VEC4S: u32 = 16;

/// How workgroups divide rows, and how many rows a tile has.
pub(super) struct Division {
    pub workgroup_size: u32,
    pub threads_per_row: u64,
    pub vector_vec4s: u64,
    pub width_vectors: u64,
    pub column_vectors: u64,
    pub column_tiles: u64,
    pub tile_rows: u64,
}

impl Division {
    /// Rows that a workgroup does at once.
    pub fn at_once(&self) -> u64 {
        u64::from(self.workgroup_size) / self.threads_per_row
    }

    /// Elements of a row that a workgroup has.
    fn tile_columns(&self) -> u64 {
        4 * self.vector_vec4s * self.column_vectors * self.threads_per_row
    }

    /// Tiles along the rows of a batch.
    fn row_tiles(&self, of: &ByColumn) -> u64 {
        div_ceil(of.rows.into(), self.tile_rows)
    }
}

/// The partial sums of a reduction.
struct Sums {
    threads_per_partial: u64,
    add_thread_rows: bool,
    partials_per_row: u64,
    row_records: u64,
    column_partials: u64,
    column_records: u64,
}

/// The regions of a reduction: the columns' statistics, and the partial sums.
struct Regions {
    stats: Region,
    of_rows: Region,
    of_columns: Region,
}

impl Planner<'_> {
    /// Why the kernels over columns cannot do a problem, if they cannot.
    pub fn columns_read_twice_unsupported_reason(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
    ) -> Option<String> {
        if !of.columns.is_multiple_of(4) {
            return Some("rows begin inside a vec4".to_owned());
        }
        if !self.body.is_gradient() {
            return self.columns_unsupported_reason(&of.layout(), &tensors.src);
        }
        let sums = self.partial_sums(of, &self.divide_for_sums(of), tensors);
        let room = self.partial_records(&tensors.src, of.statistics());
        (sums.row_records + sums.column_records > room)
            .then(|| "its partial sums would outgrow the tensor".to_owned())
    }

    /// Statistics, then the elementwise pass.
    pub(super) fn columns_forward(
        &self,
        problem: &Problem,
        of: &ByColumn,
        tensors: &Tensors,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let algorithm = self.choose_columns(of, tensors)?;
        let empty = problem.axes.elements() == 0;
        let held = self.columns_held(of);
        let held = held.filter(|_| !empty && algorithm == Algorithm::ColumnsInRegisters);
        if let Some(held) = held {
            let dispatches = self.columns_fused(of, held, tensors, problem.scalars(), workspace)?;
            return Ok(Slice::whole(algorithm, dispatches));
        }
        let stats = workspace.reserve(of.statistics())?;
        let derived = Derived {
            means: (!empty).then_some(stats),
            ..problem.derived(tensors)
        };
        let none = Partials::none(word(of.statistics()), stats);
        if empty {
            let dispatches = match tensors.results.is_empty() || of.statistics() == 0 {
                true => vec![],
                false => self.finish(&none, &derived, Route::Whole)?,
            };
            return Ok(Slice::whole(algorithm, dispatches));
        }
        let (params, mut dispatches) = self.row_params(tensors, elementwise(tensors), workspace)?;
        let (reduce, partials) =
            self.channels_last_reduce(&of.layout(), tensors, stats, workspace)?;
        dispatches.extend(reduce);
        let (added, partials) = self.add_subtotals(partials, workspace)?;
        dispatches.extend(added);
        dispatches.extend(self.finish(&partials, &derived, Route::Whole)?);
        dispatches.extend(self.columns_apply(of, tensors, stats, None, params)?);
        Ok(Slice::whole(algorithm, dispatches))
    }

    /// A reduction of columns and rows alike, the columns' sums, the elementwise pass.
    pub(super) fn columns_backward(
        &self,
        problem: &Problem,
        of: &ByColumn,
        tensors: &Tensors,
        running: &mut Option<RunningSums>,
        workspace: &mut Workspace,
    ) -> Result<Slice, Error> {
        let algorithm = self.choose_columns(of, tensors)?;
        let parameters = word(problem.axes.parameters());
        if problem.axes.elements() == 0 {
            let none = Partials::none(parameters, workspace.reserve(0)?);
            let dispatches = self.finish_written(none, tensors, problem, running, workspace)?;
            return Ok(Slice::whole(algorithm, dispatches));
        }
        let stats = workspace.reserve(of.statistics())?;
        let means = workspace.reserve(of.statistics())?;
        let mut dispatches = self.pack_statistics(tensors, &[], problem.epsilon, stats)?;
        let (params, pack) = self.row_params(tensors, elementwise(tensors), workspace)?;
        dispatches.extend(pack);

        let division = self.divide_for_sums(of);
        let sums = self.partial_sums(of, &division, tensors);
        let regions = Regions {
            stats,
            of_rows: workspace.reserve(sums.row_records)?,
            of_columns: workspace.reserve(sums.column_records)?,
        };
        let reduce = self.columns_reduce(of, tensors, &division, &sums, &regions, params)?;
        dispatches.extend(reduce);
        let of_columns = Partials::paired(
            regions.of_columns,
            word(of.statistics()),
            sums.column_partials,
        );
        let derived = Derived {
            means: Some(means),
            ..Derived::of(of.rows.into())
        };
        let (added, of_columns) = self.add_subtotals(of_columns, workspace)?;
        dispatches.extend(added);
        dispatches.extend(self.finish(&of_columns, &derived, Route::Whole)?);
        dispatches.extend(self.columns_apply(of, tensors, stats, Some(means), params)?);
        let of_rows = Partials {
            channel_stride: sums.partials_per_row,
            ..Partials::plain(regions.of_rows, parameters, sums.partials_per_row, 1)
        };
        dispatches.extend(self.finish_written(of_rows, tensors, problem, running, workspace)?);
        Ok(Slice::whole(algorithm, dispatches))
    }

    /// Divides rows among invocations: first a vector for each, then several.
    fn divide_columns(&self, of: &ByColumn) -> Division {
        let tuning = &self.profile.tuning;
        let workgroup_size = self.workgroup(tuning.workgroup);
        let vector_vec4s = u64::from(self.vector_vec4s(of.columns.into()));
        let width_vectors = div_ceil(of.columns.into(), 4 * vector_vec4s).max(1);
        let threads_per_row = tuning.channels_last_threads.clamp(1, workgroup_size);
        let threads_per_row =
            (1u64 << threads_per_row.ilog2()).min(width_vectors.next_power_of_two());
        // Twice as many as in channels last: a row's parameters are loaded for each of them.
        let vec4s = (2 * tuning.channels_last_vec4s).min(MOST_VEC4S);
        let most = most_vectors(vec4s, vector_vec4s);
        let column_tiles = div_ceil(width_vectors, threads_per_row * most);
        Division {
            workgroup_size,
            threads_per_row,
            vector_vec4s,
            width_vectors,
            column_vectors: div_ceil(width_vectors, threads_per_row * column_tiles),
            column_tiles,
            tile_rows: 1,
        }
    }

    /// The division of a reduction: enough tiles to keep the adapter busy, none too small or larger than a window, and
    /// no invocation adds too many numbers in a row.
    fn divide_for_sums(&self, of: &ByColumn) -> Division {
        let division = self.divide_columns(of);
        let tuning = &self.profile.tuning;
        let rows = u64::from(of.rows);
        let beside = division.column_tiles * u64::from(of.batches);
        let splits = div_ceil(tuning.busy_workgroups.into(), beside)
            .min(div_ceil(rows * division.tile_columns(), tuning.tile.into()))
            .max(div_ceil(rows, division.at_once() * MAX_SEQUENTIAL))
            .max(1);
        Division {
            tile_rows: div_ceil(rows, splits)
                .min(self.window_unit(of.elements()) / u64::from(of.columns).max(1))
                .max(1),
            ..division
        }
    }

    /// The division of the elementwise pass: a tile loads its coefficients once, so it grows while enough tiles are left
    /// to keep the adapter busy.
    fn divide_for_apply(&self, of: &ByColumn) -> Division {
        let division = self.divide_columns(of);
        let tuning = &self.profile.tuning;
        let tile = u64::from(tuning.tile);
        let left = of.elements() / u64::from(tuning.busy_workgroups.max(1));
        let of_a_row = 1 + division.column_vectors * (1 + division.vector_vec4s);
        Division {
            tile_rows: (left.clamp(tile, 8 * tile) / division.tile_columns())
                .min(division.at_once() * (MOST_ITERATIONS / 2 / of_a_row))
                .min(self.window_unit(of.elements()) / u64::from(of.columns).max(1))
                .max(1),
            ..division
        }
    }

    /// The partial sums that a reduction leaves. Those of rows take no more than a quarter of the room for all, if
    /// enough invocations can share one.
    fn partial_sums(&self, of: &ByColumn, division: &Division, tensors: &Tensors) -> Sums {
        let subgroup = self.subgroup(division.workgroup_size);
        let threads_per_partial = match subgroup {
            0 if self.cheap_barriers() => THREADS_PER_PARTIAL,
            0 => 1,
            subgroup => subgroup,
        };
        let mut threads_per_partial = threads_per_partial.min(division.threads_per_row);
        let parameters = of.parameters();
        let beside = match of.of_samples {
            true => division.column_tiles,
            false => division.column_tiles * u64::from(of.batches),
        };
        let partials_per_row =
            |threads_per_partial| beside * (division.threads_per_row / threads_per_partial);
        let room = self.partial_records(&tensors.src, of.statistics()) / 4;
        while threads_per_partial < division.threads_per_row
            && parameters * partials_per_row(threads_per_partial) > room
        {
            threads_per_partial *= 2;
        }
        let partials_per_row = partials_per_row(threads_per_partial);
        let add_thread_rows = division.at_once() > 1;
        // A workgroup adds up its invocations' sums, so a tile leaves one of each column.
        let column_partials = division.row_tiles(of);
        Sums {
            threads_per_partial,
            add_thread_rows,
            partials_per_row,
            row_records: match tensors.param_grads() {
                true => parameters * partials_per_row,
                false => 0,
            },
            column_partials,
            column_records: column_partials * of.statistics() / 2,
        }
    }

    fn columns_reduce(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        division: &Division,
        sums: &Sums,
        regions: &Regions,
        params: RowParams,
    ) -> Result<Vec<Dispatch>, Error> {
        let subgroup = self.subgroup(division.workgroup_size);
        let kernel = ColumnsReduce {
            threads_per_row: word(division.threads_per_row),
            threads_per_partial: word(sums.threads_per_partial),
            column_vectors: word(division.column_vectors),
            vector_vec4s: word(division.vector_vec4s),
            subgroups: (2..=subgroup).contains(&sums.threads_per_partial),
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            of_samples: of.of_samples,
            summed: tensors.param_grads(),
            add_thread_rows: sums.add_thread_rows,
        };
        self.over_columns(
            of,
            tensors,
            division,
            regions.stats,
            params,
            |window, tiles, workgroups| {
                let mut bindings = tensors.reduced(window);
                bindings.extend(params.bindings());
                bindings.push(Binding::workspace());
                let uniforms = ColumnsReduceUniforms {
                    tiles,
                    columns: word(of.statistics()),
                    partials_per_row: word(sums.partials_per_row),
                    row_partials: regions.of_rows.first,
                    partials: regions.of_columns.first,
                };
                self.dispatch(
                    kernel,
                    division.workgroup_size,
                    bindings,
                    &uniforms,
                    workgroups,
                )
            },
        )
    }

    fn columns_apply(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        stats: Region,
        means: Option<Region>,
        params: RowParams,
    ) -> Result<Vec<Dispatch>, Error> {
        let division = &self.divide_for_apply(of);
        let kernel = ColumnsApply {
            threads_per_row: word(division.threads_per_row),
            column_vectors: word(division.column_vectors),
            vector_vec4s: word(division.vector_vec4s),
            scaled: params.is_scaled(),
            offset: params.is_offset(),
            weighted: params.weighted(),
            of_samples: of.of_samples,
            batch_statistics: means.is_some(),
        };
        self.over_columns(
            of,
            tensors,
            division,
            stats,
            params,
            |window, tiles, workgroups| {
                let inputs = tensors.inputs.iter();
                let mut bindings: Vec<_> = inputs.map(|tensor| window.bind(tensor)).collect();
                bindings.extend(params.bindings());
                bindings.push(Binding::workspace());
                bindings.extend(tensors.outputs.iter().map(|tensor| window.bind(tensor)));
                let uniforms = ColumnsApplyUniforms {
                    tiles,
                    means: means.map_or(0, |region| region.first),
                };
                self.dispatch(
                    kernel,
                    division.workgroup_size,
                    bindings,
                    &uniforms,
                    workgroups,
                )
            },
        )
    }

    /// A dispatch for each window, which begins with a tile of rows.
    pub(super) fn over_columns(
        &self,
        of: &ByColumn,
        tensors: &Tensors,
        division: &Division,
        stats: Region,
        params: RowParams,
        dispatch: impl Fn(&Window, BatchTiles, [u32; 2]) -> Dispatch,
    ) -> Result<Vec<Dispatch>, Error> {
        let row_tiles = division.row_tiles(of).max(1);
        let start = |unit: u64| {
            let (batch, tile) = (unit / row_tiles, unit % row_tiles);
            (batch * u64::from(of.rows) + tile * division.tile_rows) * u64::from(of.columns)
        };
        let units = 0..row_tiles * u64::from(of.batches);
        windows(self.profile, &tensors.src, units, start)?
            .iter()
            .map(|window| {
                let tiles = window.units.start * division.column_tiles
                    ..window.units.end * division.column_tiles;
                let workgroups = self.workgroups(tiles.end - tiles.start)?;
                let range: TileRange = window.tile_range(&tensors.src, tiles, workgroups);
                let tiles = BatchTiles {
                    rows: of.rows,
                    width_vectors: word(division.width_vectors),
                    tile_rows: word(division.tile_rows),
                    column_tiles: word(division.column_tiles),
                    row_tiles: word(row_tiles),
                    parameters: word(of.parameters()),
                    range,
                    stats: stats.first,
                    weights: params.weights(),
                    offsets: params.offsets(),
                };
                Ok(dispatch(window, tiles, workgroups))
            })
            .collect()
    }
}
