//! The operators: their names, the elements that are normalized together, and the traffic.

use crate::args::name_of;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// An operator: a gradient, named by the layer alone, or a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Op {
    BatchNorm,
    LayerNorm,
    RmsNorm,
    BatchNormForward,
    BatchNormInference,
    LayerNormForward,
    RmsNormForward,
    GroupNorm,
    GroupNormForward,
    InstanceNorm,
    InstanceNormForward,
    /// Layer norm with gamma and beta of each sample.
    AdaptiveLayerNorm,
    AdaptiveLayerNormForward,
    /// Layer norm over the channels of each position, NCX.
    ChannelLayerNorm,
    ChannelLayerNormForward,
}

/// The elements that an operator normalizes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    Channels,
    Rows,
    /// Channels of one token; each sample has its own parameters.
    Tokens,
    /// Groups of channels of one sample.
    OfSamples,
    /// Channels of one position.
    Positions,
}

impl Op {
    /// The operators that are measured if none is named: a fixed list, so that results of other versions stay
    /// comparable.
    pub const USUAL: [Self; 3] = [Self::BatchNorm, Self::LayerNorm, Self::RmsNorm];

    pub fn name(self) -> String {
        name_of(self)
    }

    pub fn groups(self) -> Groups {
        match self {
            Self::BatchNorm | Self::BatchNormForward | Self::BatchNormInference => Groups::Channels,
            Self::LayerNorm | Self::LayerNormForward | Self::RmsNorm | Self::RmsNormForward => {
                Groups::Rows
            }
            Self::AdaptiveLayerNorm | Self::AdaptiveLayerNormForward => Groups::Tokens,
            Self::GroupNorm
            | Self::GroupNormForward
            | Self::InstanceNorm
            | Self::InstanceNormForward => Groups::OfSamples,
            Self::ChannelLayerNorm | Self::ChannelLayerNormForward => Groups::Positions,
        }
    }

    pub fn is_gradient(self) -> bool {
        let others = [
            Self::GroupNorm,
            Self::InstanceNorm,
            Self::AdaptiveLayerNorm,
            Self::ChannelLayerNorm,
        ];
        Self::USUAL.contains(&self) || others.contains(&self)
    }

    /// The number of tensors of src's size that it reads or writes.
    pub fn large_tensors(self) -> u64 {
        match self.is_gradient() {
            true => 3,
            false => 2,
        }
    }
}

/// The operators that a word names.
#[derive(Clone, Debug)]
pub struct Ops(Vec<Op>);

impl Ops {
    pub fn iter(&self) -> impl Iterator<Item = Op> {
        self.0.iter().copied()
    }
}

/// Parses one operator's name, or `all`.
pub fn ops() -> impl TypedValueParser<Value = Ops> {
    let all = Op::value_variants().iter().copied();
    let names = all.clone().map(Op::name).chain(["all".to_owned()]);
    PossibleValuesParser::new(names).map(move |word| {
        let named = |op: &Op| word == "all" || word == op.name();
        Ops(all.clone().filter(named).collect())
    })
}
