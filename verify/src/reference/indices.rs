//! The statistic and the parameter of each element.

use wgpu_norm::support;
use wgpu_norm::{Axis, Error};

/// For each element of src, in storage order.
pub(super) struct Indices {
    pub statistic: Vec<u32>,
    pub parameter: Vec<u32>,
    /// The number of each.
    pub statistics: usize,
    pub parameters: usize,
}

impl Indices {
    pub fn new(axes: &[Axis]) -> Result<Self, Error> {
        let kept = |axis: &Axis| !axis.reduced;
        let varied = |axis: &Axis| axis.parameter;
        Ok(Self {
            statistic: along(axes, kept)?,
            parameter: along(axes, varied)?,
            statistics: product(axes, kept),
            parameters: product(axes, varied),
        })
    }

    /// The number of elements that share a statistic.
    pub fn elements_of_a_statistic(&self) -> f64 {
        self.statistic.len() as f64 / self.statistics.max(1) as f64
    }

    /// The statistic and the parameter of each element.
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let pairs = self.statistic.iter().zip(&self.parameter);
        pairs.map(|(&statistic, &parameter)| (statistic as usize, parameter as usize))
    }
}

fn product(axes: &[Axis], counts: impl Fn(&Axis) -> bool) -> usize {
    axes.iter()
        .filter(|axis| counts(axis))
        .map(|axis| axis.size)
        .product()
}

/// For every element, the index over the axes that count, built by adding one axis after another.
fn along(axes: &[Axis], counts: impl Fn(&Axis) -> bool) -> Result<Vec<u32>, Error> {
    if axes.iter().any(|axis| axis.size == 0) {
        return Ok(Vec::new()); // the sizes before a 0 could ask for any amount of memory
    }
    let mut indices = vec![0];
    for axis in axes {
        let size = u32::try_from(axis.size).unwrap_or(u32::MAX);
        let counts = counts(axis);
        let mut longer = support::room(
            "the float64 reference",
            indices.len().saturating_mul(axis.size),
        )?;
        let next =
            |index: u32| (0..size).map(move |i| if counts { index * size + i } else { index });
        longer.extend(indices.into_iter().flat_map(next));
        indices = longer;
    }
    Ok(indices)
}
