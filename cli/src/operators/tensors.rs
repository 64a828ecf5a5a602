//! The tensors that operators take and give: in the file, then in memory.

use crate::failure::Failure;
use crate::input::{Input, Mask, Tensor};
use crate::memory;
use std::ops::Range;
use wgpu_norm::reference::to_f64;
use wgpu_norm::{DType, DTypes, Element, Error};

/// The tensors in the file.
pub struct Arguments {
    pub src: Tensor,
    /// Those of src's shape and element type, as diff_dst.
    pub beside: Vec<Tensor>,
    /// Those of the elements that are normalized together, as mean and variance.
    pub statistics: Vec<Tensor>,
    /// gamma and beta, as far as they are there.
    pub params: Vec<Tensor>,
    /// What passed an activation, a bit for each element of src.
    pub mask: Option<Mask>,
}

impl Arguments {
    /// The tensors that have to be there; what may be there is each operator's own matter.
    pub fn find(
        input: &Input,
        beside: &[&'static str],
        statistics: &[&'static str],
    ) -> Result<Self, Failure> {
        let all = |names: &[&'static str]| {
            let tensors = names.iter().map(|name| input.tensor(name, ""));
            tensors.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            src: input.tensor("src", "")?,
            beside: all(beside)?,
            statistics: all(statistics)?,
            params: vec![],
            mask: None,
        })
    }

    /// A failure if element types or shapes do not go together. What shapes statistics and parameters must have
    /// is each operator's own matter.
    pub fn check(&self) -> Result<(), Failure> {
        let src = &self.src;
        for tensor in &self.beside {
            tensor.expect_dtype(&[src.dtype()])?;
            tensor.expect_shape(&[src.shape()], " as src")?;
        }
        if let Some(mask) = &self.mask {
            mask.expect_elements_of(src)?;
        }
        let accepted: Vec<DType> = (DType::ALL.into_iter())
            .filter(|&params| src.dtype().accepts_params(params))
            .collect();
        expect_alike(&self.statistics, &accepted)?;
        // Statistics may be f32 beside 16-bit parameters.
        let statistics = self.statistics.first().map(Tensor::dtype);
        let goes = |&params: &DType| statistics.is_none_or(|s| s == params || s == DType::F32);
        let accepted: Vec<DType> = accepted.into_iter().filter(goes).collect();
        expect_alike(&self.params, &accepted)
    }

    /// All statistics, gamma and beta.
    pub fn of_groups(&self) -> impl Iterator<Item = &Tensor> {
        self.statistics.iter().chain(&self.params)
    }

    /// The names of all that is there.
    pub fn names(&self) -> Vec<&'static str> {
        let all = self.beside.iter().chain(self.of_groups());
        let mask = self.mask.iter().map(|_| "mask");
        all.map(Tensor::name).chain(mask).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        let mut all = self.beside.iter().chain(self.of_groups());
        all.any(|tensor| tensor.name() == name)
    }

    /// The shape of parameters' gradients: gamma's, or the statistics', where batch norm has no gamma.
    pub fn params_shape(&self) -> &[usize] {
        let first = self.params.iter().chain(&self.statistics).next();
        first.map_or(&[], Tensor::shape)
    }

    /// The element types. Where there is no parameter, they have the type of statistics, else that of sums, which
    /// statistics have that are not there.
    pub fn dtypes(&self) -> DTypes {
        let data = self.src.dtype();
        let first = |tensors: &[Tensor]| tensors.first().map(Tensor::dtype);
        let (params, statistics) = (first(&self.params), first(&self.statistics));
        let params = params.or(statistics).unwrap_or(data.accumulator());
        let types = DTypes::from((data, params));
        types.with_statistics(statistics.unwrap_or(types.statistics))
    }
}

/// A failure if the first tensor has none of these types, or another one not the first's.
fn expect_alike(tensors: &[Tensor], accepted: &[DType]) -> Result<(), Failure> {
    let Some((first, others)) = tensors.split_first() else {
        return Ok(());
    };
    first.expect_dtype(accepted)?;
    let mut others = others.iter();
    others.try_for_each(|tensor| tensor.expect_dtype(&[first.dtype()]))
}

/// Tensors in memory with their names: those that an operator takes, or those that it gives.
pub struct Values<T, P, S> {
    /// Of src's shape.
    pub data: Named<T>,
    /// Of gamma's shape.
    pub params: Named<P>,
    pub statistics: Named<S>,
    /// What passed an activation.
    pub mask: Option<Vec<u32>>,
}

/// Some of src's samples, its first axis.
pub struct Samples {
    pub range: Range<usize>,
    pub all: usize,
    /// Whether statistics are of samples.
    pub have_statistics: bool,
}

impl Samples {
    /// The elements that belong to them, of a tensor that is of all samples.
    pub fn of(&self, elements: usize) -> Range<usize> {
        let each = elements.checked_div(self.all).unwrap_or(0);
        self.range.start * each..self.range.end * each
    }
}

/// Tensors of one element type.
pub type Named<T> = Vec<(&'static str, Vec<T>)>;

impl<T: Element, P: Element, S: Element> Values<T, P, S> {
    /// Reads the file's tensors.
    pub fn read(input: &Input, arguments: &Arguments) -> Result<Self, Failure> {
        let data = std::iter::once(&arguments.src).chain(&arguments.beside);
        Ok(Self {
            data: read(input, data)?,
            params: read(input, &arguments.params)?,
            statistics: read(input, &arguments.statistics)?,
            mask: match &arguments.mask {
                Some(mask) => Some(input.read_mask(mask)?),
                None => None,
            },
        })
    }

    /// Reads what belongs to some of src's samples; parameters and statistics may have other types in the file.
    pub fn read_samples(
        input: &Input,
        arguments: &Arguments,
        samples: &Samples,
    ) -> Result<Self, Failure> {
        let data = std::iter::once(&arguments.src).chain(&arguments.beside);
        let part = |tensor: &Tensor| samples.of(tensor.elements());
        let all = |tensor: &Tensor| 0..tensor.elements();
        Ok(Self {
            data: data
                .map(|tensor| Ok((tensor.name(), input.read_part(tensor, &part(tensor))?)))
                .collect::<Result<_, Failure>>()?,
            params: (arguments.params.iter())
                .map(|tensor| Ok((tensor.name(), input.read_as(tensor, &all(tensor))?)))
                .collect::<Result<_, Failure>>()?,
            statistics: (arguments.statistics.iter())
                .map(|tensor| {
                    let elements = match samples.have_statistics {
                        true => part(tensor),
                        false => all(tensor),
                    };
                    Ok((tensor.name(), input.read_as(tensor, &elements)?))
                })
                .collect::<Result<_, Failure>>()?,
            mask: match &arguments.mask {
                Some(mask) => {
                    let bits = part(&arguments.src);
                    let words = bits.start / 32..bits.end.div_ceil(32);
                    Some(input.read_mask_part(mask, &words)?)
                }
                None => None,
            },
        })
    }

    /// The tensor of src's shape of a name. One that `Arguments` did not find is empty, which the library refuses.
    pub fn data(&self, name: &str) -> &[T] {
        find(&self.data, name).unwrap_or_default()
    }

    /// The statistic of a name, likewise.
    pub fn statistic(&self, name: &str) -> &[S] {
        find(&self.statistics, name).unwrap_or_default()
    }

    pub fn residual(&self) -> Option<&[T]> {
        find(&self.data, "residual")
    }

    pub fn gamma(&self) -> Option<&[P]> {
        find(&self.params, "gamma")
    }

    pub fn beta(&self) -> Option<&[P]> {
        find(&self.params, "beta")
    }

    /// The same as the reference takes them.
    pub fn to_f64(&self) -> Result<Values<f64, f64, f64>, Error> {
        Ok(Values {
            data: all_to_f64(&self.data)?,
            params: all_to_f64(&self.params)?,
            statistics: all_to_f64(&self.statistics)?,
            mask: match &self.mask {
                Some(words) => Some(memory::copied("mask", words)?),
                None => None,
            },
        })
    }
}

fn read<'t, T: Element>(
    input: &Input,
    tensors: impl IntoIterator<Item = &'t Tensor>,
) -> Result<Named<T>, Failure> {
    let tensors = tensors.into_iter();
    let read = tensors.map(|tensor| Ok((tensor.name(), input.read(tensor)?)));
    read.collect()
}

fn find<'t, T>(tensors: &'t Named<T>, name: &str) -> Option<&'t [T]> {
    let mut tensors = tensors.iter();
    let found = tensors.find(|(known, _)| *known == name);
    found.map(|(_, values)| values.as_slice())
}

fn all_to_f64<T: Element>(tensors: &Named<T>) -> Result<Named<f64>, Error> {
    let tensors = tensors.iter();
    let in_f64 = tensors.map(|(name, values)| Ok((*name, to_f64("a tensor in float64", values)?)));
    in_f64.collect()
}
