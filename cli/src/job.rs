//! The work around every operator on files.

use crate::args::{FileArgs, GpuArgs};
use crate::check::Comparison;
use crate::failure::Failure;
use crate::input::Input;
use crate::numbers;
use crate::output::{Described, Output, Parts};
use crate::progress::Progress;
use crate::ranks::Group;
use crate::stdout;
use crate::text::excerpt;
use std::fmt::Display;
use wgpu_norm::{DType, GpuContext, Tensor};

/// One run of an operator, from its files to its files.
pub struct Job {
    /// The input file.
    pub input: Input,
    /// Shows what is being done.
    pub progress: Progress,
    /// Whether to compare results with the reference.
    pub check: bool,
    /// The memory budget for tensors in bytes, if they are to be processed in pieces.
    pub memory_budget: Option<u64>,
    output: Output,
    /// Whether another process reports for all.
    is_quiet: bool,
}

/// The adapter and the processes that an operator runs on.
pub struct Machine<'a> {
    /// The flags that choose the adapter.
    pub gpu: &'a GpuArgs,
    /// The processes that share the samples, if there are several.
    pub ranks: Option<&'a Group>,
}

impl Job {
    /// Opens the input and checks that the output can be written. A file that was made for an operator other than
    /// `operator` causes a warning, which may explain a later failure.
    pub fn start(files: &FileArgs, operator: &str, on: &Machine<'_>) -> Result<Self, Failure> {
        let is_quiet = on.ranks.is_some_and(|group| group.rank > 0);
        let job = Self {
            input: Input::open(&files.input)?,
            output: Output::prepare(&files.output)?,
            progress: if is_quiet {
                Progress::quiet()
            } else {
                Progress::new()
            },
            is_quiet,
            check: files.check,
            memory_budget: files.memory_budget.map(|size| size.as_u64()),
        };
        if let Some(op) = job.input.attribute("op").filter(|&op| op != operator) {
            let op = excerpt(op);
            job.warn(format_args!("metadata op: expected {operator}, got {op}"));
        }
        Ok(job)
    }

    /// Opens the adapter.
    pub fn open_gpu(&self, args: &GpuArgs) -> Result<GpuContext, Failure> {
        // The library's warnings go to stderr.
        Ok(self.progress.suspend(|| args.open())?)
    }

    /// Says something on stderr that is no failure.
    pub fn warn(&self, message: impl Display) {
        if !self.is_quiet {
            self.progress.suspend(|| log::warn!("{message}"));
        }
    }

    /// Says how many elements of a result are not finite, and the possible causes.
    pub fn warn_of_lost(&self, tensor: Tensor, how_many: impl Display) {
        self.warn(format_args!(
            "{}: {how_many} elements are not finite: inputs are not, or a square, a sum or a result overflows its type",
            tensor.name()
        ));
    }

    /// Says how many variances are so small that their 16-bit type holds little or nothing of them.
    pub fn warn_of_small(&self, tensor: Tensor, how_many: impl Display, dtype: DType) {
        self.warn(format_args!(
            "{}: {how_many} elements are below the smallest normal {dtype}, {:e}",
            tensor.name(),
            numbers::least(dtype)
        ));
    }

    /// Reports the comparison, if there is one, and writes the results unless it failed.
    pub fn finish(
        self,
        gpu: &GpuContext,
        what: &str,
        results: &[(Described, &[u8])],
        comparison: Option<Comparison>,
    ) -> Result<(), Failure> {
        if let Some(comparison) = comparison {
            self.progress.suspend(|| comparison.report())?;
        }
        let tensors: Vec<_> = results
            .iter()
            .map(|(described, _)| described.tensor)
            .collect();
        self.end(gpu, what, &tensors, |output| output.write(results))
    }

    /// Creates the output file of these results, to be written in parts.
    pub fn create_parts(&self, results: &[Described]) -> Result<Parts, Failure> {
        self.output.create(results)
    }

    /// The output file.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Does the same as [`finish`](Self::finish) for results that were written in parts.
    pub fn finish_parts(
        self,
        gpu: &GpuContext,
        what: &str,
        results: &[Described],
        parts: Parts,
    ) -> Result<(), Failure> {
        let tensors: Vec<_> = results.iter().map(|described| described.tensor).collect();
        self.end(gpu, what, &tensors, |_| parts.finish())
    }

    /// Makes the output appear, and says on stdout what was done.
    fn end(
        self,
        gpu: &GpuContext,
        what: &str,
        results: &[Tensor],
        write: impl FnOnce(&Output) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self {
            input,
            output,
            progress,
            ..
        } = self;
        // Some systems refuse to replace an open file, and the output may be the input.
        drop(input);
        progress.step("writing");
        write(&output)?;
        drop(progress);
        let adapter = gpu.adapter_info();
        let names: Vec<_> = results.iter().map(|tensor| tensor.name()).collect();
        stdout::line(format_args!(
            "{} of {what}, on {} ({}), in {}",
            names.join(", "),
            adapter.name,
            adapter.backend,
            output.path().display()
        ))
    }
}
