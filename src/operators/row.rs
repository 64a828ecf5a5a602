//! A line of the table of an operator's tensors.

use crate::tensor::Tensor;

/// A tensor of an operator.
pub struct Row {
    /// Its name in the document.
    pub name: &'static str,
    /// What it is here; none if it is not read.
    pub tensor: Option<Tensor>,
    /// Whether it holds 1/√(variance + epsilon) in place of the variance.
    pub inverse: bool,
    /// Whether its shape has src's rank, with sizes of 1 where the statistics have none.
    pub keeps_rank: bool,
    /// Whether a caller gives it.
    pub presence: Presence,
}

/// Whether a caller gives an input. The words say why, as an error does.
pub enum Presence {
    Required(String),
    Optional,
    Absent(String),
}

/// An input that is always given, or an output.
pub(super) fn tensor(name: &'static str, tensor: Tensor) -> Row {
    Row {
        name,
        tensor: Some(tensor),
        inverse: false,
        keeps_rank: false,
        presence: Presence::Required(String::new()),
    }
}

impl Row {
    /// An input that may be given.
    pub fn optional(self) -> Self {
        let presence = Presence::Optional;
        Self { presence, ..self }
    }

    /// An input that is given exactly if an attribute is true.
    pub fn only_if(self, attribute: &str, is: bool) -> Self {
        let why = format!(", as {attribute} is {is}");
        let presence = if is {
            Presence::Required(why)
        } else {
            Presence::Absent(why)
        };
        Self { presence, ..self }
    }

    /// An input that may be given if an attribute is true.
    pub fn optional_if(self, attribute: &str, is: bool) -> Self {
        if is {
            self.optional()
        } else {
            self.only_if(attribute, is)
        }
    }

    /// An input that must be given in a case, and may be given otherwise.
    pub fn required_if(self, case: &str, is: bool) -> Self {
        if is {
            let presence = Presence::Required(format!(", {case}"));
            Self { presence, ..self }
        } else {
            self.optional()
        }
    }

    /// An input that must be given in a case, and is not read otherwise.
    pub fn read_if(self, case: &str, is: bool) -> Self {
        let tensor = self.tensor.filter(|_| is);
        Self { tensor, ..self }.required_if(case, is)
    }

    /// A running statistic that is updated, or in this case a constant that is normalized by.
    pub fn constant_if(self, is: bool) -> Self {
        let tensor = match self.tensor {
            Some(Tensor::RunningMean) if is => Some(Tensor::Mean),
            Some(Tensor::RunningVariance) if is => Some(Tensor::Variance),
            other => other,
        };
        Self { tensor, ..self }
    }

    /// An output, if a mask selects it.
    pub fn selected(self, index: usize, mask: [bool; 3]) -> Self {
        let selected = mask.get(index).is_some_and(|selected| *selected);
        let tensor = self.tensor.filter(|_| selected);
        Self { tensor, ..self }
    }

    /// A statistic whose shape has src's rank, with sizes of 1 along the normalized axes, which come last.
    pub fn keeping_rank(self) -> Self {
        let keeps_rank = true;
        Self { keeps_rank, ..self }
    }

    /// A tensor of 1/√(variance + epsilon) in place of the variance.
    pub fn inverse(self) -> Self {
        let inverse = true;
        Self { inverse, ..self }
    }
}
