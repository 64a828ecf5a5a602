//! An operator's attributes: a flag counts before the file's metadata, and that before the default.

use crate::failure::Failure;
use crate::input::Input;
use clap::ArgMatches;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::str::FromStr;
use wgpu_norm::{Activation, DataFormat, ParamGrads, RunningVariance, Through};

/// An attribute with a few named values, spelled alike in flags and metadata.
pub trait Choice: Copy + Send + Sync + 'static {
    /// What help calls a value.
    const VALUE_NAME: &'static str;
    /// Every value and its name.
    const VALUES: &'static [(&'static str, Self)];

    /// The value's name.
    fn name(self) -> &'static str
    where
        Self: PartialEq,
    {
        let mut values = Self::VALUES.iter();
        let found = values.find(|(_, value)| *value == self);
        found.map_or("", |&(name, _)| name)
    }

    /// The value of a name, in any case.
    fn parse(name: &str) -> Option<Self> {
        let mut values = Self::VALUES.iter();
        let found = values.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, value)| value)
    }
}

/// What tells the channels of src.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// One axis of it.
    Axis(DataFormat),
    /// The axes along which the parameters, of src's rank, have its size and not 1.
    Broadcast,
}

impl Choice for Format {
    const VALUE_NAME: &'static str = "FORMAT";
    const VALUES: &'static [(&'static str, Self)] = &[
        ("NCX", Self::Axis(DataFormat::Ncx)),
        ("NXC", Self::Axis(DataFormat::Nxc)),
        ("broadcast", Self::Broadcast),
    ];
}

impl Choice for DataFormat {
    const VALUE_NAME: &'static str = "FORMAT";
    const VALUES: &'static [(&'static str, Self)] = &[("NCX", Self::Ncx), ("NXC", Self::Nxc)];
}

impl Choice for Through {
    const VALUE_NAME: &'static str = "KIND";
    const VALUES: &'static [(&'static str, Self)] =
        &[("batch", Self::Batch), ("constant", Self::Constant)];
}

impl Choice for Activation {
    const VALUE_NAME: &'static str = "WHAT";
    const VALUES: &'static [(&'static str, Self)] = Self::NAMES;
}

impl Choice for RunningVariance {
    const VALUE_NAME: &'static str = "KIND";
    const VALUES: &'static [(&'static str, Self)] =
        &[("biased", Self::Biased), ("unbiased", Self::Unbiased)];
}

impl Choice for bool {
    const VALUE_NAME: &'static str = "BOOL";
    const VALUES: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

impl Choice for ParamGrads {
    const VALUE_NAME: &'static str = "WHICH";
    const VALUES: &'static [(&'static str, Self)] = &[
        ("both", Self::Both),
        ("neither", Self::Neither),
        ("frozen", Self::Frozen),
    ];
}

/// The parser of a flag.
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let names = T::VALUES.iter().map(|&(name, _)| name);
    PossibleValuesParser::new(names)
        .try_map(|name| T::parse(&name).ok_or("not one of the possible values"))
}

/// What a number has to be.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected {0}")]
pub struct Wanted(&'static str);

/// epsilon. Whether it is one in f32, too, depends on the data, which the library looks at.
pub fn epsilon(text: &str) -> Result<f64, Wanted> {
    let fits = |value: &f64| value.is_normal() && *value > 0.0;
    read(text, fits, "a finite, normal number above 0")
}

/// A part of 1.
pub fn weight(text: &str) -> Result<f64, Wanted> {
    read(
        text,
        |value| (0.0..=1.0).contains(value),
        "a number from 0 to 1",
    )
}

/// How many of something.
pub fn count(text: &str) -> Result<usize, Wanted> {
    read(text, |&value| value > 0, "an integer above 0")
}

/// An axis, which may count from the end.
pub fn axis(text: &str) -> Result<i64, Wanted> {
    read(text, |_| true, "an integer")
}

fn read<T: FromStr>(
    text: &str,
    fits: impl Fn(&T) -> bool,
    wanted: &'static str,
) -> Result<T, Wanted> {
    let number = text.trim().parse().ok();
    number.filter(fits).ok_or(Wanted(wanted))
}

/// What flags and the file's metadata give.
pub struct Given<'a> {
    pub flags: &'a ArgMatches,
    pub input: &'a Input,
}

impl Given<'_> {
    /// A flag's value, where there is such a flag.
    pub fn flag<T: Clone + Send + Sync + 'static>(&self, key: &str) -> Option<T> {
        self.flags.try_get_one(key).ok().flatten().cloned()
    }

    /// A named value: the flag's, else the metadata's, else none.
    pub fn named<T: Choice>(&self, key: &'static str) -> Result<Option<T>, Failure> {
        self.find(key, |text| {
            let names = T::VALUES.iter().map(|&(name, _)| name);
            T::parse(text).ok_or_else(|| names.collect::<Vec<_>>().join(" or "))
        })
    }

    /// A number, likewise.
    pub fn number<T: Clone + Send + Sync + 'static>(
        &self,
        key: &'static str,
        read: fn(&str) -> Result<T, Wanted>,
    ) -> Result<Option<T>, Failure> {
        self.find(key, |text| {
            read(text).map_err(|Wanted(expected)| expected.to_owned())
        })
    }

    /// `read` says what was expected where a text makes no sense.
    fn find<T: Clone + Send + Sync + 'static>(
        &self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        match (self.flag(key), self.input.attribute(key)) {
            (None, Some(text)) => read(text).map(Some).map_err(|expected| Failure::Metadata {
                key,
                expected,
                got: text.to_owned(),
            }),
            (flag, _) => Ok(flag),
        }
    }
}
