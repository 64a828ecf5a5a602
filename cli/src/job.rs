//! What every operator on files does around its own work.

use crate::args::{FileArgs, GpuArgs};
use crate::check::Comparison;
use crate::failure::Failure;
use crate::input::{self, Input};
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::ranks::Group;
use crate::stdout;
use crate::text::excerpt;
use std::fmt::Display;
use wgpu_norm::GpuContext;

/// One run of an operator, from its files to its files.
pub struct Job {
    /// The file of the arguments.
    pub input: Input,
    /// Says what is being done.
    pub progress: Progress,
    /// Whether results are to be compared with the reference.
    pub check: bool,
    /// Bytes that tensors may take, if they are to pass through memory in pieces.
    pub memory_budget: Option<u64>,
    output: Output,
    /// Another process speaks for all.
    is_quiet: bool,
}

/// Where an operator runs.
pub struct Machine<'a> {
    /// Which adapter.
    pub gpu: &'a GpuArgs,
    /// The processes that share the samples, if there are several.
    pub ranks: Option<&'a Group>,
}

impl Job {
    /// Opens the input and looks where the output will go. A file that was made for another operator than
    /// `operator` is not refused, but what fails next may be due to that.
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

    /// Says how many elements of a result are not finite, and what that may come from.
    pub fn warn_of_lost(&self, tensor: &str, how_many: impl Display) {
        self.warn(format_args!(
            "{tensor}: {how_many} elements are not finite: inputs are not, or a square, a sum or a result overflows its type"
        ));
    }

    /// Reports the comparison, if there is one, then writes the results unless it failed.
    pub fn finish(
        self,
        gpu: &GpuContext,
        src: &input::Tensor,
        attributes: &str,
        results: &[output::Tensor<'_>],
        comparison: Option<Comparison>,
    ) -> Result<(), Failure> {
        if let Some(comparison) = comparison {
            self.progress.suspend(|| comparison.report())?;
        }
        let names: Vec<_> = results.iter().map(output::Tensor::name).collect();
        self.end(&names, gpu, src, attributes, |output| output.write(results))
    }

    /// Creates the file of these results, for parts of them to be written into it.
    pub fn create_parts(
        &self,
        results: &[output::Described<'_>],
    ) -> Result<output::Parts, Failure> {
        self.output.create(results)
    }

    /// The place of the output.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// What [`finish`](Self::finish) does, of results whose parts were written.
    pub fn finish_parts(
        self,
        parts: output::Parts,
        names: &[&str],
        gpu: &GpuContext,
        src: &input::Tensor,
        attributes: &str,
    ) -> Result<(), Failure> {
        self.end(names, gpu, src, attributes, |_| parts.finish())
    }

    /// Has the output appear, and says on stdout what was done.
    fn end(
        self,
        names: &[&str],
        gpu: &GpuContext,
        src: &input::Tensor,
        attributes: &str,
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
        stdout::line(format_args!(
            "{} of src {} {:?}, {attributes}, on {} ({}), in {}",
            names.join(", "),
            src.dtype(),
            src.shape(),
            adapter.name,
            adapter.backend,
            output.path().display()
        ))
    }
}
