//! An operator's attributes: a flag takes precedence over the file's metadata, and that over the default.

use crate::failure::Failure;
use crate::input::{Input, listed};
use crate::text::excerpt;
use clap::ArgMatches;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::str::FromStr;
use wgpu_norm::{Activation, DataFormat, RunningVariance, Through};

/// An attribute with a few named values, spelled alike in flags and metadata.
pub trait Choice: Copy + Send + Sync + 'static {
    /// The name of a value in help texts.
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

    /// The value of a name, case-insensitive.
    fn parse(name: &str) -> Option<Self> {
        let mut values = Self::VALUES.iter();
        let found = values.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, value)| value)
    }
}

/// The axes of src that hold its channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// One axis.
    Axis(DataFormat),
    /// The axes along which the parameters, which have src's rank, have src's size and not 1.
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

/// Parses a flag whose values are named.
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let names = T::VALUES.iter().map(|&(name, _)| name);
    PossibleValuesParser::new(names)
        .try_map(|name| T::parse(&name).ok_or("not one of the possible values"))
}

/// An invalid number, as the description of a valid one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected {0}")]
pub struct Wanted(&'static str);

/// Parses epsilon. Whether it is also valid in f32 depends on the data; the library checks that.
pub fn epsilon(text: &str) -> Result<f64, Wanted> {
    let fits = |value: &f64| value.is_normal() && *value > 0.0;
    read(text, fits, "a finite, normal number above 0")
}

/// Parses a weight from 0 to 1.
pub fn weight(text: &str) -> Result<f64, Wanted> {
    read(
        text,
        |value| (0.0..=1.0).contains(value),
        "a number from 0 to 1",
    )
}

/// Parses a positive count.
pub fn count(text: &str) -> Result<usize, Wanted> {
    read(text, |&value| value > 0, "an integer above 0")
}

/// Parses an axis; negative ones count from the end.
pub fn axis(text: &str) -> Result<i64, Wanted> {
    read(text, |_| true, "an integer")
}

/// Parses a set of axes; it may be empty.
pub fn axes(text: &str) -> Result<Vec<i64>, Wanted> {
    let axes = text.split(',').map(str::trim);
    let axes = axes.filter(|_| !text.trim().is_empty()).map(axis);
    axes.collect::<Result<_, _>>()
        .map_err(|_| Wanted("integers, separated by commas"))
}

fn read<T: FromStr>(
    text: &str,
    fits: impl Fn(&T) -> bool,
    wanted: &'static str,
) -> Result<T, Wanted> {
    let number = text.trim().parse().ok();
    number.filter(fits).ok_or(Wanted(wanted))
}

/// Words that begin other names of attributes, in files' metadata. The first that fits counts.
const OTHER_NAMES: [(&str, &[&str]); 12] = [
    (ZERO_CENTERED, &["zero_cent", "zerocent"]),
    (ZERO_CENTERED, &["unit_offset", "plus_one", "1p"]),
    ("epsilon", &["eps"]),
    ("begin_norm_axis", &["normalized_shape", "axis", "dim"]),
    ("param_axes", &["param"]),
    ("axes", &["axes", "axis", "normalized_shape", "dim"]),
    ("centered", &["center"]),
    ("groups", &["group"]),
    ("use_affine", &["affine"]),
    ("data_format", &["format", "layout", "channels_last"]),
    ("activation", &["act"]),
    ("running_weight", &["momentum"]),
];

/// Without it, a layer whose gamma is stored less 1 gives wrong results.
const ZERO_CENTERED: &str = "zero_centered_gamma";

/// The attribute among these that a key of another name probably means.
fn meant(key: &str, attributes: &[String]) -> Option<&'static str> {
    let is_between = |c: char| !c.is_ascii_alphanumeric();
    let words = format!("_{}", key.to_lowercase().replace(is_between, "_"));
    let mut names = OTHER_NAMES.into_iter();
    let found = names.find(|(attribute, begins)| {
        let mut begins = begins.iter().map(|begin| format!("_{begin}"));
        attributes.iter().any(|one| one == attribute) && begins.any(|begin| words.contains(&begin))
    });
    found.map(|(attribute, _)| attribute)
}

/// The attributes given by flags and by the file's metadata.
pub struct Given<'a> {
    pub flags: &'a ArgMatches,
    pub input: &'a Input,
}

impl Given<'_> {
    /// A flag's value, if the operator has the flag and it is given.
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

    /// A number, found in the same way.
    pub fn number<T: Clone + Send + Sync + 'static>(
        &self,
        key: &'static str,
        read: fn(&str) -> Result<T, Wanted>,
    ) -> Result<Option<T>, Failure> {
        self.find(key, |text| {
            read(text).map_err(|Wanted(expected)| expected.to_owned())
        })
    }

    /// Names the keys of metadata that are none of the operator's attributes, and what they probably mean; none if
    /// there are no such keys. `op` has a warning of its own, and by `format` libraries name themselves. A failure if
    /// results would be wrong.
    pub fn left_out(&self, attributes: &[String]) -> Result<Option<String>, Failure> {
        let mut left = vec![];
        let known = |key| attributes.iter().any(|one| one == key) || matches!(key, "op" | "format");
        for key in self.input.keys().filter(|key| !known(key)) {
            let meant = meant(key, attributes);
            let got = self.input.attribute(key).unwrap_or_default();
            let is_decided = self.named::<bool>(ZERO_CENTERED)?.is_some();
            if meant == Some(ZERO_CENTERED) && !is_decided && bool::parse(got) != Some(false) {
                return Err(Failure::Metadata {
                    key: excerpt(key),
                    expected: format!("the name {ZERO_CENTERED}, or --zero-centered-gamma"),
                    got: got.to_owned(),
                });
            }
            let name = meant.map(|meant| format!("{key} (here {meant})"));
            left.push((meant.is_none(), name.unwrap_or_else(|| key.to_owned())));
        }
        // Those that probably mean something come first.
        left.sort();
        let names: Vec<_> = left.into_iter().map(|(_, name)| name).collect();
        let looked = attributes.join(", ");
        let message = || format!("metadata: {} left out; looked for {looked}", listed(&names));
        Ok((!names.is_empty()).then(message))
    }

    /// For a text that is invalid, `read` returns what was expected.
    fn find<T: Clone + Send + Sync + 'static>(
        &self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        match (self.flag(key), self.input.attribute(key)) {
            (None, Some(text)) => read(text).map(Some).map_err(|expected| Failure::Metadata {
                key: key.to_owned(),
                expected,
                got: text.to_owned(),
            }),
            (flag, _) => Ok(flag),
        }
    }
}
