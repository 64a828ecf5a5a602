//! A case and its ID.

use crate::expected::Expected;
use crate::setting::Setting;
use crate::tokens::{self, read_shape, show_shape};
use crate::values::Values;
use std::fmt;
use std::str::FromStr;
use wgpu_norm::{Algorithm, DType, Error, Operation};

/// An operation with its data, the way to compute it, and the assertions about the results.
///
/// As text, its ID: the operation, the shape, and any unusual options, in any order. The [crate](crate) lists the
/// parts.
///
/// ```
/// use wgpu_norm::Algorithm;
/// use wgpu_norm_verify::Case;
/// let case: Case = "batch_norm_backward/2x3x5x7/ncx/f16-f32/channels_last/in_place".parse()?;
/// assert_eq!(case.algorithm(), Some(Algorithm::ChannelsLast));
/// assert_eq!(case.operation().shape, [2, 3, 5, 7]);
/// assert_eq!(case.to_string().parse::<Case>()?, case);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub(crate) operation: Operation,
    pub(crate) values: Values,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) setting: Setting,
    pub(crate) memory: Memory,
    pub(crate) halves: Option<Halves>,
    pub(crate) checks: Checks,
}

/// The placement of the tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// Buffers end with their tensors.
    pub exact: bool,
    /// All tensors are in one buffer.
    pub pooled: bool,
    /// Alignments before a buffer's first tensor; one, if none is given.
    pub offset: Option<u8>,
    /// diff_src is written over diff_dst.
    pub in_place: bool,
}

/// The way to record an operator whose sums can be added between its two halves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Halves {
    /// Both halves, one after the other.
    Both,
    /// The halves of two parts of the samples, whose sums are added or whose records are put side by side.
    TwoShards,
}

/// Further assertions, besides the results' errors and that nothing else is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Checks {
    /// A second run gives the same bits.
    pub repeats: bool,
    /// Shader checks give the same bits.
    pub checked: bool,
    /// Bindings of this many bytes give the same bits.
    pub windows: Option<u32>,
    /// Whatever a NaN does not reach keeps its bits, and whatever it reaches is NaN.
    pub nan: bool,
    /// Whatever an infinity does not reach keeps its bits, and whatever it makes NaN is not finite.
    pub infinite: bool,
    /// Whatever a number whose square overflows does not reach keeps its bits, and whatever it reaches is correct or
    /// not finite.
    pub square_overflow: bool,
}

/// Results are compared in parts, but computed at once.
const MOST_ELEMENTS: usize = 1 << 24;
/// If all elements of a tensor are equal, only its bytes take memory.
const MOST_ALIKE: usize = 1 << 28;

impl Case {
    /// The operation to compute.
    pub const fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The algorithm that the case forces; none if the plan chooses.
    pub const fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// The tensors that the operation reads, as numbers that their element types represent exactly.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::tensors`], if there is no such operation.
    pub fn inputs(&self) -> Result<Vec<Input>, Error> {
        let numbers = self.values.inputs(&self.operation)?;
        let inputs = numbers.into_iter().map(|numbers| Input {
            name: numbers.tensor.name(),
            dtype: numbers.dtype,
            values: numbers
                .values
                .iter()
                .copied()
                .cycle()
                .take(numbers.len)
                .collect(),
        });
        Ok(inputs.collect())
    }

    /// The tensors that the operation writes, by the float64 reference.
    ///
    /// # Errors
    ///
    /// Those of the [`reference`](mod@crate::reference), for operations that it refuses.
    pub fn expected(&self) -> Result<Vec<Expected>, Error> {
        let inputs = self.values.inputs(&self.operation)?;
        self.values.expected(&self.operation, &inputs)
    }

    /// Applies a part of an ID that does not belong to the operation; returns whether it is known.
    fn set(&mut self, token: &str) -> bool {
        let values = Values::NAMES.iter().find(|(name, _)| *name == token);
        let windows = token.strip_prefix("windows=").map(str::parse);
        let offset = token.strip_prefix("offset=").map(str::parse);
        if let Ok(algorithm) = token.parse() {
            self.algorithm = Some(algorithm);
        } else if let Some((_, values)) = values {
            self.values = *values;
        } else if let Some(Ok(bytes)) = windows {
            self.checks.windows = Some(bytes);
        } else if let Some(Ok(alignments)) = offset {
            self.memory.offset = Some(alignments);
        } else {
            match token {
                "exact" => self.memory.exact = true,
                "pooled" => self.memory.pooled = true,
                "in_place" => self.memory.in_place = true,
                "halves" => self.halves = Some(Halves::Both),
                "two_shards" => self.halves = Some(Halves::TwoShards),
                "repeats" => self.checks.repeats = true,
                "checked" => self.checks.checked = true,
                "nan" => self.checks.nan = true,
                "infinite" => self.checks.infinite = true,
                "square_overflow" => self.checks.square_overflow = true,
                token => return self.setting.set(token),
            }
        }
        true
    }
}

/// A tensor that a case's operation reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name: `src` and so on.
    pub name: &'static str,
    /// Its element type.
    pub dtype: DType,
    /// Its elements.
    pub values: Vec<f64>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = show_shape(&self.operation.shape);
        write!(f, "{}/{shape}", self.operation.name())?;
        for token in tokens::tokens(&self.operation) {
            write!(f, "/{token}")?;
        }
        let mut values = Values::NAMES.iter();
        if let Some((name, _)) = values.find(|(_, values)| *values == self.values) {
            write!(f, "/{name}")?;
        }
        if let Some(algorithm) = self.algorithm {
            write!(f, "/{algorithm}")?;
        }
        write!(f, "{}", self.setting)?;
        let flags = [
            (self.memory.exact, "exact"),
            (self.memory.pooled, "pooled"),
            (self.memory.in_place, "in_place"),
            (self.halves == Some(Halves::Both), "halves"),
            (self.halves == Some(Halves::TwoShards), "two_shards"),
            (self.checks.repeats, "repeats"),
            (self.checks.checked, "checked"),
            (self.checks.nan, "nan"),
            (self.checks.infinite, "infinite"),
            (self.checks.square_overflow, "square_overflow"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            write!(f, "/{name}")?;
        }
        if let Some(alignments) = self.memory.offset {
            write!(f, "/offset={alignments}")?;
        }
        match self.checks.windows {
            Some(bytes) => write!(f, "/windows={bytes}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Case {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |expected: &str, got: &str| Error::argument("case", expected, got);
        let mut tokens = text.split('/');
        let name = tokens.next().unwrap_or_default();
        let shape = tokens.next().unwrap_or("nothing");
        let Some(shape) = read_shape(shape) else {
            return Err(refused("a shape such as 2x3x5 after the operator", shape));
        };
        let Some(operation) = tokens::operation(name, &shape) else {
            let names = tokens::names().join(", ");
            return Err(refused(&format!("an operator of {names}"), name));
        };
        let mut case = Self {
            operation,
            values: Values::Random,
            algorithm: None,
            setting: Setting::default(),
            memory: Memory::default(),
            halves: None,
            checks: Checks::default(),
        };
        for token in tokens {
            if !tokens::set(&mut case.operation, token) && !case.set(token) {
                return Err(refused("parts that wgpu_norm_verify lists", token));
            }
        }
        case.operation.epsilon = case.values.epsilon();
        let most = match case.values {
            Values::Alike => MOST_ALIKE,
            _ => MOST_ELEMENTS,
        };
        // A tensor without elements may still have channels or columns.
        let elements = shape
            .iter()
            .try_fold(1_usize, |all, &size| all.checked_mul(size.max(1)));
        if elements.is_none_or(|elements| elements > most) {
            return Err(refused(
                &format!("at most {most} elements"),
                &show_shape(&shape),
            ));
        }
        Ok(case)
    }
}
