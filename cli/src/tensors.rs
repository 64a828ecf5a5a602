//! The tensors that operators take: in the file, then in memory.

use crate::failure::Failure;
use crate::input::{Input, Tensor};
use wgpu_norm::reference::to_f64;
use wgpu_norm::{DType, Element, Error, ParamOf};

/// The tensors in the file.
pub struct Arguments {
    pub src: Tensor,
    pub diff_dst: Tensor,
    pub mean: Tensor,
    pub variance: Tensor,
    pub gamma: Option<Tensor>,
    pub beta: Option<Tensor>,
}

impl Arguments {
    /// The tensors that every operator needs; gamma and beta are each operator's own matter.
    pub fn find(input: &Input) -> Result<Self, Failure> {
        Ok(Self {
            src: input.tensor("src", "")?,
            diff_dst: input.tensor("diff_dst", "")?,
            mean: input.tensor("mean", "")?,
            variance: input.tensor("variance", "")?,
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
        self.mean.expect_dtype(&allowed)?;
        let mut params = self.params();
        params.try_for_each(|param| param.expect_dtype(&[self.mean.dtype()]))
    }

    /// All but src and diff_dst.
    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        let optional = [&self.gamma, &self.beta].into_iter().flatten();
        [&self.mean, &self.variance].into_iter().chain(optional)
    }

    /// The element types of src and of the parameters.
    pub fn dtypes(&self) -> (DType, DType) {
        (self.src.dtype(), self.mean.dtype())
    }

    /// The shape of diff_gamma and diff_beta: gamma's, which is mean's where gamma may be left out.
    pub fn param_grads_shape(&self) -> &[usize] {
        self.gamma.as_ref().unwrap_or(&self.mean).shape()
    }
}

/// The tensors in memory.
pub struct Values<'a, T, P> {
    /// The shape of src.
    pub shape: &'a [usize],
    pub src: Vec<T>,
    pub diff_dst: Vec<T>,
    pub mean: Vec<P>,
    pub variance: Vec<P>,
    pub gamma: Option<Vec<P>>,
    pub beta: Option<Vec<P>>,
}

impl<'a, T: Element, P: ParamOf<T>> Values<'a, T, P> {
    /// Reads the file's tensors.
    pub fn read(input: &Input, arguments: &'a Arguments) -> Result<Self, Failure> {
        let optional = |param: &Option<Tensor>| param.as_ref().map(|p| input.read(p)).transpose();
        Ok(Self {
            shape: arguments.src.shape(),
            src: input.read(&arguments.src)?,
            diff_dst: input.read(&arguments.diff_dst)?,
            mean: input.read(&arguments.mean)?,
            variance: input.read(&arguments.variance)?,
            gamma: optional(&arguments.gamma)?,
            beta: optional(&arguments.beta)?,
        })
    }

    /// The same as the reference takes them.
    pub fn to_f64(&self) -> Result<Values<'a, f64, f64>, Error> {
        let optional = |name, values: &Option<Vec<P>>| {
            let values = values.as_deref();
            values.map(|values| to_f64(name, values)).transpose()
        };
        Ok(Values {
            shape: self.shape,
            src: to_f64("src in float64", &self.src)?,
            diff_dst: to_f64("diff_dst in float64", &self.diff_dst)?,
            mean: to_f64("mean in float64", &self.mean)?,
            variance: to_f64("variance in float64", &self.variance)?,
            gamma: optional("gamma in float64", &self.gamma)?,
            beta: optional("beta in float64", &self.beta)?,
        })
    }
}
