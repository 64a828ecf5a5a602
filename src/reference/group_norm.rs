//! Group norm, forward and gradient. Instance norm is group norm with a group for each channel.

use super::forward::{Affine, groups, moments, unzip};
use super::{
    Forward, Gradients, OF_CHANNELS, OF_ELEMENTS, Sums, channel_axes, channel_of, check_length,
    counted, inverse_deviation, product, zeros,
};
use crate::{DataFormat, Error, ParamGrads, memory};

/// Group norm's gradient. A group is some channels of one sample, side by side, with all their other elements; with
/// r = 1/√(variance + epsilon), x̂ = (src − mean)·r, d = diff_dst·gamma and m elements in a group,
/// diff_src = r·((d − Σd/m) − x̂·(Σd·x̂/m)); diff_gamma = Σ diff_dst·x̂ and diff_beta = Σ diff_dst over the elements of a
/// channel.
///
/// The scale of diff_src is layer norm's, of the group: r·(max|d| + Σ|d|/m + max|x̂|·Σ|d·x̂|/m).
///
/// ```
/// use wgpu_norm::{DataFormat, ParamGrads, reference};
///
/// let gradients = reference::GroupNorm {
///     shape: &[1, 4, 1], // one sample of four channels, in two groups
///     data_format: DataFormat::Ncx,
///     groups: 2,
///     src: &[1.0, 3.0, 10.0, 30.0],
///     diff_dst: &[1.0, 0.0, 0.0, 4.0],
///     mean: &[2.0, 20.0],
///     variance: &[1.0, 100.0],
///     gamma: Some(&[1.0, 2.0, 0.0, 1.0]),
///     epsilon: 1e-5,
///     param_grads: ParamGrads::Both,
/// }
/// .backward()?;
/// assert_eq!(gradients.diff_beta, [1.0, 0.0, 0.0, 4.0]);
/// assert!((gradients.diff_gamma[0] - -1.0).abs() < 1e-4);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm<'a> {
    /// Sizes of `src` and `diff_dst`, rank 2 to 8, row-major; axis 0 is that of the samples.
    pub shape: &'a [usize],
    /// Where the channel axis stands.
    pub data_format: DataFormat,
    /// Groups of a sample's channels.
    pub groups: usize,
    /// The forward pass's input.
    pub src: &'a [f64],
    /// Gradient of the forward pass's output.
    pub diff_dst: &'a [f64],
    /// Mean per group: by sample, then by group.
    pub mean: &'a [f64],
    /// Biased variance per group.
    pub variance: &'a [f64],
    /// Scale per channel; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Added to the variance.
    pub epsilon: f64,
    /// [`ParamGrads::Neither`] makes `diff_src` ignore gamma.
    pub param_grads: ParamGrads,
}

impl GroupNorm<'_> {
    /// Computes the gradients by the formula.
    ///
    /// # Errors
    /// As [`BatchNorm::backward`](super::BatchNorm::backward), and [`Error::Argument`] if there are no groups or they do
    /// not divide the channels.
    pub fn backward(&self) -> Result<Gradients, Error> {
        let sizes = Sizes::new(self.shape, self.data_format, self.groups)?;
        check_length("src", sizes.elements, self.src.len())?;
        check_length("diff_dst", sizes.elements, self.diff_dst.len())?;
        check_length("mean", sizes.all_groups, self.mean.len())?;
        check_length("variance", sizes.all_groups, self.variance.len())?;
        let channels = sizes.channels;
        check_length("gamma", channels, self.gamma.map_or(channels, <[f64]>::len))?;

        let cell_of = sizes.cell_of(self.shape, self.data_format)?;
        let r = inverse_deviation(self.variance, self.epsilon);
        let r = memory::collect(OF_CHANNELS, r)?;
        let gamma = counted(self.gamma, self.param_grads);
        let x_hat = |i: usize, g: usize| (self.src[i] - self.mean[g]) * r[g];
        let d = |i: usize, c: usize| self.diff_dst[i] * gamma.map_or(1.0, |gamma| gamma[c]);

        let mut of_groups = zeros(sizes.all_groups)?;
        let mut of_channels = zeros(channels)?;
        for (i, &cell) in cell_of.iter().enumerate() {
            let (g, c) = sizes.group_and_channel(cell);
            of_groups[g].add(d(i, c), x_hat(i, g));
            of_channels[c].add(self.diff_dst[i], x_hat(i, g));
        }
        let m = sizes.elements as f64 / sizes.all_groups as f64;
        let mut diff_src = memory::room(OF_ELEMENTS, sizes.elements)?;
        let mut diff_src_scale = memory::room(OF_ELEMENTS, sizes.elements)?;
        for (i, &cell) in cell_of.iter().enumerate() {
            let (g, c) = sizes.group_and_channel(cell);
            let sums: &Sums = &of_groups[g];
            diff_src.push(r[g] * sums.centred(d(i, c), x_hat(i, g), m));
            diff_src_scale.push(r[g] * sums.scale(m));
        }
        Gradients::new(diff_src, diff_src_scale, &of_channels)
    }
}

/// Group norm: dst = gamma·x̂ + beta, x̂ = (src − mean)·r, r = 1/√(variance + epsilon), with mean and variance of some
/// channels of one sample, side by side, and all their other elements. The scales are batch norm's.
///
/// ```
/// use wgpu_norm::{DataFormat, reference};
///
/// let layer = reference::GroupNormForward {
///     shape: &[1, 4, 1], // one sample of four channels, in two groups
///     data_format: DataFormat::Ncx,
///     groups: 2,
///     src: &[1.0, 3.0, 10.0, 30.0],
///     gamma: Some(&[1.0, 1.0, 1.0, 2.0]),
///     beta: Some(&[0.0, 0.0, 0.0, 5.0]),
///     epsilon: 1e-5,
/// };
/// let output = layer.forward()?;
/// assert_eq!(output.mean, [2.0, 20.0]);
/// assert_eq!(output.variance, [1.0, 100.0]);
/// assert!((output.dst[3] - 7.0).abs() < 1e-4);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GroupNormForward<'a> {
    /// Sizes of `src`, rank 2 to 8, row-major; axis 0 is that of the samples.
    pub shape: &'a [usize],
    /// Where the channel axis stands.
    pub data_format: DataFormat,
    /// Groups of a sample's channels.
    pub groups: usize,
    /// The tensor to normalize.
    pub src: &'a [f64],
    /// Scale per channel; 1 if absent.
    pub gamma: Option<&'a [f64]>,
    /// Offset per channel; 0 if absent.
    pub beta: Option<&'a [f64]>,
    /// Added to the variance.
    pub epsilon: f64,
}

impl GroupNormForward<'_> {
    /// Normalizes each group by its own mean and biased variance: `dst`, `mean` and `variance`, these by sample, then by
    /// group. A group without elements has mean 0 and variance 0.
    ///
    /// # Errors
    /// As [`GroupNorm::backward`].
    pub fn forward(&self) -> Result<Forward, Error> {
        let sizes = self.check()?;
        let cell_of = sizes.cell_of(self.shape, self.data_format)?;
        let group_of = |i: usize| sizes.group_and_channel(cell_of[i]).0;
        let moments = moments(self.src, group_of, sizes.all_groups)?;
        let groups = groups(&moments, self.epsilon, false)?;
        let dst = self.src.iter().zip(&cell_of).map(|(&x, &cell)| {
            let (g, c) = sizes.group_and_channel(cell);
            self.affine().apply(c, groups[g].x_hat(x))
        });
        Forward::new(dst, &groups)
    }

    /// Normalizes by a given mean and variance per group. Of the outputs there is `dst` alone.
    ///
    /// # Errors
    /// As [`GroupNorm::backward`].
    pub fn infer(&self, mean: &[f64], variance: &[f64]) -> Result<Forward, Error> {
        let sizes = self.check()?;
        check_length("mean", sizes.all_groups, mean.len())?;
        check_length("variance", sizes.all_groups, variance.len())?;
        let cell_of = sizes.cell_of(self.shape, self.data_format)?;
        let r = memory::collect(OF_CHANNELS, inverse_deviation(variance, self.epsilon))?;
        let dst = self.src.iter().zip(&cell_of).map(|(&x, &cell)| {
            let (g, c) = sizes.group_and_channel(cell);
            let x_hat = (x - mean[g]) * r[g];
            self.affine().apply(c, (x_hat, x_hat.abs()))
        });
        let (dst, dst_scale) = unzip(OF_ELEMENTS, dst)?;
        Ok(Forward {
            dst,
            dst_scale,
            ..Forward::default()
        })
    }

    fn check(&self) -> Result<Sizes, Error> {
        let sizes = Sizes::new(self.shape, self.data_format, self.groups)?;
        check_length("src", sizes.elements, self.src.len())?;
        self.affine().check(sizes.channels)?;
        Ok(sizes)
    }

    fn affine(&self) -> Affine<'_> {
        Affine {
            gamma: self.gamma,
            beta: self.beta,
        }
    }
}

/// How a tensor is divided into groups.
struct Sizes {
    elements: usize,
    channels: usize,
    /// Of all samples.
    all_groups: usize,
    /// Channels of a group.
    group_channels: usize,
}

impl Sizes {
    fn new(shape: &[usize], format: DataFormat, groups: usize) -> Result<Self, Error> {
        let elements = product("src", shape)?;
        let axis = match format {
            DataFormat::Ncx => Some(1),
            DataFormat::Nxc => shape.len().checked_sub(1).filter(|&axis| axis > 0),
        };
        let sizes = axis.and_then(|axis| Some((*shape.first()?, *shape.get(axis)?)));
        let Some((samples, channels)) = sizes.filter(|_| shape.len() <= super::MAX_RANK) else {
            return Err(Error::Rank {
                tensor: "src",
                min: 2,
                max: super::MAX_RANK,
                got: shape.len(),
            });
        };
        // No groups divide no channels.
        if !channels.is_multiple_of(groups) {
            return Err(Error::Argument {
                argument: "groups",
                expected: format!("a number from 1 on that divides the {channels} channels"),
                got: groups.to_string(),
            });
        }
        Ok(Self {
            elements,
            channels,
            all_groups: product("mean", &[samples, groups])?,
            group_channels: channels.checked_div(groups).unwrap_or(0),
        })
    }

    /// Of each element, the channel among those of all samples.
    fn cell_of(&self, shape: &[usize], format: DataFormat) -> Result<Vec<usize>, Error> {
        let mut axes = channel_axes(shape.len(), format);
        axes[0] = true;
        channel_of(shape, &axes)
    }

    /// Of a channel among those of all samples, the group among those of all samples, and the channel of its sample.
    fn group_and_channel(&self, cell: usize) -> (usize, usize) {
        (cell / self.group_channels, cell % self.channels)
    }
}
