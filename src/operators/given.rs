//! The inputs that a caller gives, checked against the table of an operator.

use super::inputs::{Input, Inputs};
use super::row::{Presence, Row};
use crate::element::{DType, DTypes};
use crate::error::Error;
use crate::geometry::{check_length, elements};
use crate::operation::{Norm, Operation, Pass};
use crate::tensor::{Format, Tensor};
use std::sync::OnceLock;

/// An operator's inputs, each with its row of the table.
pub struct Given<'a> {
    /// The shape of src.
    pub shape: &'a [usize],
    /// Whether it is for buffers of the caller's.
    pub planned: bool,
    /// The sizes that parameters and statistics are expanded to, if the operator broadcasts each on its own.
    pub sizes: OnceLock<Vec<usize>>,
    rows: Vec<(Row, Option<Input<'a>>)>,
}

/// An input that is given, and its name in the document.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub name: &'static str,
    pub input: Input<'a>,
}

impl<'a> Given<'a> {
    /// Finds each input's row.
    pub fn new(table: Vec<Row>, inputs: &Inputs<'a>, planned: bool) -> Result<Self, Error> {
        let named = |name| move |input: &&Input<'a>| input.name == name;
        let known = |input: &&Input<'a>| table.iter().any(|row| row.name == input.name);
        if let Some(unknown) = inputs.tensors.iter().find(|input| !known(input)) {
            let names: Vec<_> = table.iter().map(|row| row.name).collect();
            let expected = format!("one of {}", names.join(", "));
            return Err(Error::argument("name of an input", expected, unknown.name));
        }
        let mut rows = Vec::new();
        for row in table {
            let name = row.name;
            let mut found = inputs.tensors.iter().filter(named(name));
            let input = found.next().copied();
            if found.next().is_some() {
                return Err(Error::argument(name, "one tensor", "two"));
            }
            match (&row.presence, input) {
                (Presence::Required(why), None) => {
                    return Err(Error::argument(name, format!("a tensor{why}"), "none"));
                }
                (Presence::Absent(why), Some(_)) => {
                    return Err(Error::argument(name, format!("none{why}"), "a tensor"));
                }
                _ => rows.push((row, input)),
            }
        }
        let mut given = Self {
            shape: &[],
            planned,
            sizes: OnceLock::new(),
            rows,
        };
        given.shape = given.require(Tensor::Src)?.input.shape;
        given.check_sizes()?;
        Ok(given)
    }

    /// An error for a slice that is not as long as its shape says, and for data of another shape than src's.
    fn check_sizes(&self) -> Result<(), Error> {
        for (row, input) in &self.rows {
            let (name, Some(input)) = (row.name, input) else {
                continue;
            };
            let is_data = |tensor: Tensor| tensor.is_data() || tensor == Tensor::Mask;
            if row.tensor.is_some_and(is_data) && input.shape != self.shape {
                let (expected, got) = (self.shape, input.shape);
                return Err(Error::argument(
                    name,
                    format!("shape {expected:?}"),
                    format!("{got:?}"),
                ));
            }
            let Some(bytes) = input.bytes else { continue };
            let expected = match input.format {
                Format::Bits => elements(name, input.shape)?.div_ceil(32),
                Format::Elements(_) => elements(name, input.shape)?,
            };
            let size = input.format.size() as usize;
            if !bytes.len().is_multiple_of(size) {
                let expected = format!("{expected} elements of {size} bytes");
                return Err(Error::argument(
                    name,
                    expected,
                    format!("{} bytes", bytes.len()),
                ));
            }
            check_length(name, expected, bytes.len() / size)?;
        }
        Ok(())
    }

    /// All inputs that are given.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, Named<'a>)> {
        self.rows.iter().filter_map(|(row, input)| {
            let (name, input) = (row.name, (*input)?);
            Some((row, Named { name, input }))
        })
    }

    /// The input that is this tensor, if it is given.
    pub fn find(&self, tensor: Tensor) -> Option<Named<'a>> {
        let mut inputs = self.iter();
        let found = inputs.find(|(row, _)| row.tensor == Some(tensor));
        found.map(|(_, named)| named)
    }

    /// The input that is this tensor.
    pub fn require(&self, tensor: Tensor) -> Result<Named<'a>, Error> {
        let missing = || Error::argument(self.name(tensor.name()), "a tensor", "none");
        self.find(tensor).ok_or_else(missing)
    }

    /// Whether this tensor is given.
    pub fn has(&self, tensor: Tensor) -> bool {
        self.find(tensor).is_some()
    }

    /// An error if one of two tensors is given without the other.
    pub fn both(&self, tensors: [Tensor; 2]) -> Result<(), Error> {
        if let [Some(given), None] | [None, Some(given)] = tensors.map(|tensor| self.find(tensor)) {
            let missing = tensors
                .into_iter()
                .find(|tensor| self.find(*tensor).is_none());
            let missing = missing.map_or(given.name, |tensor| self.name(tensor.name()));
            let expected = format!("a tensor, as {} is given", given.name);
            return Err(Error::argument(missing, expected, "none"));
        }
        Ok(())
    }

    /// The document's name of what has this name in errors.
    pub fn name(&self, name: &'static str) -> &'static str {
        let mut rows = self.rows.iter().map(|(row, _)| row);
        let is = |row: &&Row| !row.inverse && row.tensor.is_some_and(|own| own.name() == name);
        rows.find(is).map_or(name, |row| row.name)
    }

    /// An operation on these tensors, whose statistics have the type of those that are given, else of the parameters.
    pub fn operation(
        &self,
        norm: Norm,
        pass: impl Into<Pass>,
        epsilon: impl Into<f64>,
    ) -> Result<Operation, Error> {
        let statistics = self.first(&[
            Tensor::Mean,
            Tensor::Variance,
            Tensor::RunningMean,
            Tensor::RunningVariance,
        ]);
        let data = self.dtype(self.require(Tensor::Src)?)?;
        let params = self.params(data)?;
        let own = statistics
            .map(|named| self.accepted(named, data))
            .transpose()?;
        let types = DTypes::from((data, params.or(own).unwrap_or(data.accumulator())));
        let types = types.with_statistics(own.unwrap_or(types.params));
        if let Some(Named { name, .. }) = statistics
            && ![types.params, data.accumulator()].contains(&types.statistics)
        {
            let params = types.params;
            let expected = format!("{params} beside parameters of {params}");
            return Err(Error::argument(name, expected, types.statistics));
        }
        Ok(self.with_types(norm, pass, epsilon, types))
    }

    /// An operation on these tensors, whose statistics have the type of sums.
    pub fn operation_with_sums(
        &self,
        norm: Norm,
        pass: impl Into<Pass>,
        epsilon: impl Into<f64>,
    ) -> Result<Operation, Error> {
        let data = self.dtype(self.require(Tensor::Src)?)?;
        let params = self.params(data)?.unwrap_or(data);
        Ok(self.with_types(norm, pass, epsilon, (data, params).into()))
    }

    fn with_types(
        &self,
        norm: Norm,
        pass: impl Into<Pass>,
        epsilon: impl Into<f64>,
        types: DTypes,
    ) -> Operation {
        Operation::new(norm, pass, self.shape, types)
            .with_epsilon(epsilon.into())
            .with_params(self.has(Tensor::Gamma), self.has(Tensor::Beta))
    }

    /// The type of the parameters, if one is given.
    fn params(&self, data: DType) -> Result<Option<DType>, Error> {
        let param = self.first(&[Tensor::Gamma, Tensor::Beta]);
        param.map(|named| self.accepted(named, data)).transpose()
    }

    /// The type of a parameter or statistic; an error for one that does not go with the data's.
    fn accepted(&self, named: Named<'_>, data: DType) -> Result<DType, Error> {
        let dtype = self.dtype(named)?;
        if data.accepts_params(dtype) {
            return Ok(dtype);
        }
        let allowed = DType::ALL
            .iter()
            .filter(|other| data.accepts_params(**other));
        let allowed: Vec<_> = allowed.map(DType::to_string).collect();
        let expected = format!("{} elements beside data of {data}", allowed.join(" or "));
        Err(Error::argument(named.name, expected, dtype))
    }

    /// The first of these tensors that is given.
    fn first(&self, tensors: &[Tensor]) -> Option<Named<'a>> {
        tensors.iter().find_map(|tensor| self.find(*tensor))
    }

    fn dtype(&self, Named { name, input }: Named<'_>) -> Result<DType, Error> {
        match input.format {
            Format::Elements(dtype) => Ok(dtype),
            Format::Bits => Err(Error::argument(name, "numbers", input.format)),
        }
    }
}
