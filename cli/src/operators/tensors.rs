//! The tensors that operators take: in the file, then in memory.

use crate::failure::Failure;
use crate::input::{Input, Tensor};
use wgpu_norm::reference::to_f64;
use wgpu_norm::{DType, Element, Error, ParamOf};

/// The tensors in the file.
pub struct Arguments {
    pub src: Tensor,
    pub diff_dst: Tensor,
    /// Of the elements that are normalized together, as mean and variance.
    pub statistics: Vec<Tensor>,
    pub gamma: Option<Tensor>,
    pub beta: Option<Tensor>,
}

impl Arguments {
    /// The tensors that have to be there, with the statistics of these names; gamma and beta are each operator's own
    /// matter.
    pub fn find(input: &Input, statistics: &[&'static str]) -> Result<Self, Failure> {
        let statistics = statistics.iter().map(|name| input.tensor(name, ""));
        Ok(Self {
            src: input.tensor("src", "")?,
            diff_dst: input.tensor("diff_dst", "")?,
            statistics: statistics.collect::<Result<_, _>>()?,
            gamma: None,
            beta: None,
        })
    }

    /// A failure if element types or shapes do not go together. What shapes the parameters must have
    /// is each operator's own matter.
    pub fn check(&self) -> Result<(), Failure> {
        let src = &self.src;
        self.diff_dst.expect_dtype(&[src.dtype()])?;
        self.diff_dst.expect_shape(&[src.shape()], " as src")?;
        let all = DType::ALL.iter().copied();
        let allowed: Vec<DType> = all.filter(|&p| src.dtype().accepts_params(p)).collect();
        let first = self.first_param();
        first.expect_dtype(&allowed)?;
        let mut params = self.params();
        params.try_for_each(|param| param.expect_dtype(&[first.dtype()]))
    }

    /// All but src and diff_dst.
    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        let optional = [&self.gamma, &self.beta].into_iter().flatten();
        self.statistics.iter().chain(optional)
    }

    /// The parameter whose element type the others must have, the first; src where there is none.
    pub fn first_param(&self) -> &Tensor {
        self.params().next().unwrap_or(&self.src)
    }

    /// The element types of src and of the parameters.
    pub fn dtypes(&self) -> (DType, DType) {
        (self.src.dtype(), self.first_param().dtype())
    }

    /// The shape of diff_gamma and diff_beta: gamma's, or the first statistic's where batch norm has no gamma.
    pub fn param_grads_shape(&self) -> &[usize] {
        self.gamma.as_ref().unwrap_or(self.first_param()).shape()
    }
}

/// The tensors in memory.
pub struct Values<'a, T, P> {
    /// The shape of src.
    pub shape: &'a [usize],
    pub src: Vec<T>,
    pub diff_dst: Vec<T>,
    /// With their names.
    pub statistics: Vec<(&'static str, Vec<P>)>,
    pub gamma: Option<Vec<P>>,
    pub beta: Option<Vec<P>>,
}

impl<'a, T: Element, P: ParamOf<T>> Values<'a, T, P> {
    /// Reads the file's tensors.
    pub fn read(input: &Input, arguments: &'a Arguments) -> Result<Self, Failure> {
        let statistics = arguments.statistics.iter();
        let statistics = statistics.map(|tensor| Ok((tensor.name(), input.read(tensor)?)));
        let optional = |param: &Option<Tensor>| param.as_ref().map(|p| input.read(p)).transpose();
        Ok(Self {
            shape: arguments.src.shape(),
            src: input.read(&arguments.src)?,
            diff_dst: input.read(&arguments.diff_dst)?,
            statistics: statistics.collect::<Result<_, Failure>>()?,
            gamma: optional(&arguments.gamma)?,
            beta: optional(&arguments.beta)?,
        })
    }

    /// The statistic of a name. One that `Arguments` did not find is empty, which the library refuses.
    pub fn statistic(&self, name: &str) -> &[P] {
        let mut statistics = self.statistics.iter();
        let found = statistics.find(|(statistic, _)| *statistic == name);
        found.map_or(&[], |(_, values)| values)
    }

    /// The same as the reference takes them.
    pub fn to_f64(&self) -> Result<Values<'a, f64, f64>, Error> {
        let statistics = self.statistics.iter();
        let statistics = statistics.map(|(name, values)| Ok((*name, to_f64(name, values)?)));
        let optional = |name, values: &Option<Vec<P>>| {
            let values = values.as_deref();
            values.map(|values| to_f64(name, values)).transpose()
        };
        Ok(Values {
            shape: self.shape,
            src: to_f64("src in float64", &self.src)?,
            diff_dst: to_f64("diff_dst in float64", &self.diff_dst)?,
            statistics: statistics.collect::<Result<_, Error>>()?,
            gamma: optional("gamma in float64", &self.gamma)?,
            beta: optional("beta in float64", &self.beta)?,
        })
    }
}
