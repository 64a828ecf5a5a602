//! From an operator and its inputs to an operation, and to its outputs.

use super::broadcast::expand;
use super::definition::Operator;
use super::given::{Given, Named};
use super::inputs::Inputs;
use super::outputs::{Output, Outputs};
use super::row::Row;
use crate::context::GpuContext;
use crate::error::Error;
use crate::geometry::{check_length, elements};
use crate::operation::Operation;
use crate::tensor::{Format, Tensor};
use std::borrow::Cow;

/// A tensor that the operation reads, and its bytes.
type Read<'a> = (Tensor, Cow<'a, [u8]>);

/// The operation for inputs that are given or described.
///
/// # Errors
///
/// Those of every operator's `operation`.
pub fn operation(operator: &dyn Operator, inputs: &Inputs<'_>) -> Result<Operation, Error> {
    let given = Given::new(operator.input_rows(), inputs, true)?;
    let define = || {
        let operation = operator.define(&given)?;
        check(&given, &operation)?;
        if let Some(sizes) = given.sizes.get() {
            for (_, named) in given.iter().filter(|(row, _)| is_broadcast(row)) {
                check_same_sizes(named, sizes)?;
            }
        }
        Ok(operation)
    };
    define().map_err(|error: Error| error.renamed(|name| given.name(name)))
}

/// An error for an input of another type or shape than the operation's tensor. Parameters may be broadcast.
fn check(given: &Given<'_>, operation: &Operation) -> Result<(), Error> {
    let tensors = operation.tensors()?;
    let broadcasts = given.sizes.get().is_some();
    for (row, Named { name, input }) in given.iter() {
        let Some(tensor) = row.tensor else { continue };
        let used = tensors.iter().find(|used| used.tensor == tensor);
        // What no result depends on is a parameter.
        let params = Format::Elements(operation.types.params);
        let format = used.map_or(params, |used| used.format);
        if input.format != format {
            return Err(Error::argument(name, format.to_string(), input.format));
        }
        if tensor.is_data() || tensor == Tensor::Mask || (broadcasts && is_broadcast(row)) {
            continue;
        }
        let shape = match used {
            Some(used) => used.shape.clone(),
            None => operation.norm.params_shape(&operation.shape),
        };
        let expected = elements(name, &shape)?;
        let got = usize::try_from(elements(name, input.shape)?).unwrap_or(usize::MAX);
        check_length(name, expected, got).map_err(|error| operation.explained(error, tensor))?;
        let without_ones = |shape: &[usize]| -> Vec<usize> {
            shape.iter().copied().filter(|&size| size != 1).collect()
        };
        let own = without_ones(input.shape);
        // A row's parameters may have the normalized axes, or one for all.
        let is_row = operation.norm.is_over_rows() && tensor.is_param();
        let is_row = is_row && without_ones(&operation.shape).ends_with(&own);
        if !(own.len() < 2 || is_row || own == without_ones(&shape)) {
            let got = format!("{:?}", input.shape);
            return Err(Error::argument(name, format!("shape {shape:?}"), got));
        }
    }
    Ok(())
}

/// An error for a parameter that would have to be expanded.
fn check_same_sizes(Named { name, input }: Named<'_>, sizes: &[usize]) -> Result<(), Error> {
    let own = input.shape;
    let lacking = sizes.iter().take(sizes.len().saturating_sub(own.len()));
    if sizes.ends_with(own) && lacking.into_iter().all(|&size| size == 1) {
        return Ok(());
    }
    let expected =
        format!("the sizes {sizes:?} (only in host memory may parameters have different ones)");
    Err(Error::argument(name, expected, format!("{own:?}")))
}

/// Whether an input is broadcast where parameters are.
fn is_broadcast(row: &Row) -> bool {
    row.tensor
        .is_some_and(|tensor| tensor.is_param() || tensor.is_statistic())
}

/// Computes an operator's outputs from inputs in host memory.
///
/// # Errors
///
/// Those of every operator's `run`.
pub async fn run(
    operator: &dyn Operator,
    gpu: &GpuContext,
    inputs: &Inputs<'_>,
) -> Result<Outputs, Error> {
    let given = Given::new(operator.input_rows(), inputs, false)?;
    let rename = |error: Error| error.renamed(|name| given.name(name));
    let operation = operator.define(&given).map_err(rename)?;
    let mut read = read(&given, &operation).map_err(rename)?;
    let tensors = operation.tensors()?;
    let mut results = Vec::new();
    for row in operator.output_rows() {
        let mut written = tensors.iter().filter(|used| used.access.writes());
        if let Some(used) = written.find(|used| Some(used.tensor) == row.tensor) {
            let mut output = Output::new(row.name, used)?;
            if row.keeps_rank {
                output.shape.resize(operation.shape.len(), 1);
            } else if used.tensor.is_data() {
                output.shape = given.shape.to_vec();
            }
            if let Some(at) = read.iter().position(|(tensor, _)| *tensor == used.tensor) {
                output.bytes_mut().copy_from_slice(&read.swap_remove(at).1);
            }
            results.push((used.tensor, row.inverse, output));
        }
    }
    let read: Vec<_> = read
        .iter()
        .map(|(tensor, bytes)| (*tensor, &**bytes))
        .collect();
    let mut written: Vec<_> = results
        .iter_mut()
        .map(|(tensor, _, output)| (*tensor, output.bytes_mut()))
        .collect();
    let done = operation.run_into(gpu, &read, &mut written).await;
    done.map_err(rename)?;
    let finished = results.into_iter().map(|(_, inverse, mut output)| {
        if let (true, Format::Elements(dtype)) = (inverse, output.format) {
            let variances = dtype.values(output.bytes());
            let inverse = variances.map(|variance| 1.0 / (variance + operation.epsilon).sqrt());
            let bytes = dtype.encode(inverse);
            output.bytes_mut().copy_from_slice(&bytes);
        }
        output
    });
    Ok(Outputs {
        tensors: finished.collect(),
    })
}

/// The bytes of the tensors that the operation reads, in the types and sizes that it has.
fn read<'a>(given: &Given<'a>, operation: &Operation) -> Result<Vec<Read<'a>>, Error> {
    check(given, operation)?;
    let mut read = Vec::new();
    for (row, named) in given.iter() {
        let Named { name, input } = named;
        let Some(bytes) = input.bytes else {
            return Err(Error::argument(name, "elements in host memory", "none"));
        };
        let Some(tensor) = row.tensor.filter(|tensor| operation.has_tensor(*tensor)) else {
            continue;
        };
        let bytes = match (given.sizes.get(), input.format) {
            (Some(sizes), _) if is_broadcast(row) => expand(named, sizes)?,
            (_, Format::Elements(dtype)) if row.inverse => {
                // If a variance is tiny beside epsilon, its relative error is large, and it may even be below 0. But
                // variance + epsilon, which is all that matters, is as exact as the given numbers.
                let inverse = || dtype.values(bytes);
                if let Some(at) = inverse().position(|r| r <= 0.0 || r.is_infinite()) {
                    let got = inverse().nth(at).unwrap_or(0.0);
                    let got = format!("{got:?} at {at}");
                    return Err(Error::argument(name, "finite numbers above 0", got));
                }
                Cow::Owned(dtype.encode(inverse().map(|r| 1.0 / (r * r) - operation.epsilon)))
            }
            _ => Cow::Borrowed(bytes),
        };
        read.push((tensor, bytes));
    }
    Ok(read)
}
