//! The rows of layer and RMS norm, as parts of an ID: `axis_1` for the first normalized axis, the last one where it is
//! absent.

/// The shape of src, and the axes that are normalized.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    pub shape: Vec<usize>,
    /// The first of them.
    pub axis: usize,
}

impl Rows {
    pub fn new(shape: &[usize]) -> Self {
        Self {
            shape: shape.to_vec(),
            axis: shape.len().saturating_sub(1),
        }
    }

    pub fn token(&self) -> Option<String> {
        let last = self.axis + 1 == self.shape.len();
        (!last).then(|| format!("axis_{}", self.axis))
    }

    /// Takes a part of an ID, if it is one of these.
    pub fn set(&mut self, token: &str) -> bool {
        match token.strip_prefix("axis_").map(str::parse) {
            Some(Ok(axis)) if axis < self.shape.len() => self.axis = axis,
            _ => return false,
        }
        true
    }

    /// As the operators take it.
    pub fn begin_norm_axis(&self) -> i64 {
        i64::try_from(self.axis).unwrap_or(i64::MAX)
    }

    /// How many rows and columns there are.
    pub fn sizes(&self) -> (usize, usize) {
        let (rows, columns) = self.shape.split_at(self.axis.min(self.shape.len()));
        (rows.iter().product(), columns.iter().product())
    }

    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}
