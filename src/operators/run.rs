//! From an operator and its inputs to an operation, and to its outputs.

use super::broadcast::expand;
use super::definition::Definition;
use super::given::{Given, Named};
use super::inputs::Inputs;
use super::outputs::{Output, Outputs};
use super::row::Row;
use crate::geometry::check_length;
use crate::{Error, Format, GpuContext, Operation, Tensor};
use std::borrow::Cow;

/// A tensor that the operation reads, and its bytes.
type Read<'a> = (Tensor, Cow<'a, [u8]>);

/// The operation for inputs that are given or described.
pub(super) fn operation(
    operator: &impl Definition,
    inputs: &Inputs<'_>,
) -> Result<Operation, Error> {
    let given = Given::new(operator.inputs(), inputs, false)?;
    let define = || {
        let operation = operator.define(&given)?;
        operation.check()?;
        if let Some(sizes) = operator.parameter_sizes(&given)? {
            for (_, named) in given.iter().filter(|(row, _)| is_broadcast(row)) {
                check_same_sizes(named, &sizes)?;
            }
        }
        Ok(operation)
    };
    define().map_err(|error: Error| error.renamed(|name| given.name(name)))
}

/// An error for a parameter that would have to be expanded.
fn check_same_sizes(Named { name, input }: Named<'_>, sizes: &[usize]) -> Result<(), Error> {
    let ones = input.shape.len().min(sizes.len());
    let (lacking, own) = sizes.split_at(sizes.len() - ones);
    if own == input.shape && lacking.iter().all(|&size| size == 1) {
        return Ok(());
    }
    let expected =
        format!("the sizes {sizes:?} (only in host memory may parameters have different ones)");
    Err(Error::argument(
        name,
        expected,
        format!("{:?}", input.shape),
    ))
}

/// Whether an input is broadcast where parameters are.
fn is_broadcast(row: &Row) -> bool {
    row.tensor
        .is_some_and(|tensor| tensor.is_param() || tensor.is_statistic())
}

/// Computes the outputs from inputs in host memory.
pub(super) async fn run(
    operator: &impl Definition,
    gpu: &GpuContext,
    inputs: &Inputs<'_>,
) -> Result<Outputs, Error> {
    let given = Given::new(operator.inputs(), inputs, true)?;
    let rename = |error: Error| error.renamed(|name| given.name(name));
    let operation = operator.define(&given).map_err(rename)?;
    let mut read = read(operator, &given, &operation).map_err(rename)?;
    let tensors = operation.tensors()?;
    let mut results = Vec::new();
    for row in operator.outputs() {
        let mut written = tensors.iter().filter(|used| used.access.writes());
        if let Some(used) = written.find(|used| Some(used.tensor) == row.tensor) {
            let mut output = Output::new(row.name, used)?;
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
fn read<'a>(
    operator: &impl Definition,
    given: &Given<'a>,
    operation: &Operation,
) -> Result<Vec<Read<'a>>, Error> {
    let tensors = operation.tensors()?;
    let sizes = operator.parameter_sizes(given)?;
    let mut read = Vec::new();
    for (row, named) in given.iter() {
        let Named { name, input } = named;
        let Some(tensor) = row.tensor else { continue };
        let Some(bytes) = input.bytes else {
            return Err(Error::argument(name, "elements in host memory", "none"));
        };
        let elements = |bytes: &[u8]| bytes.len() / input.format.size() as usize;
        let Some(used) = tensors.iter().find(|used| used.tensor == tensor) else {
            // Nothing depends on its elements.
            operation.check_param(tensor, elements(bytes))?;
            continue;
        };
        if input.format != used.format {
            return Err(Error::argument(name, used.format.to_string(), input.format));
        }
        let bytes = match (&sizes, used.format) {
            (Some(sizes), _) if is_broadcast(row) => expand(named, sizes)?,
            (_, Format::Elements(dtype)) if row.inverse => {
                // If a variance is tiny beside epsilon, its relative error is large, and it may even be below 0. But
                // variance + epsilon, which is all that matters, is as exact as the given numbers.
                let variances = dtype
                    .values(bytes)
                    .map(|r| 1.0 / (r * r) - operation.epsilon);
                Cow::Owned(dtype.encode(variances))
            }
            _ => Cow::Borrowed(bytes),
        };
        check_length(tensor.name(), used.elements(), elements(&bytes))
            .map_err(|error| operation.explained(error, tensor))?;
        read.push((tensor, bytes));
    }
    Ok(read)
}
