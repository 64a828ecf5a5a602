//! The profile for a case.

use std::fmt;
use wgpu_norm::{F16Encoder, Profile, Tuning};

/// The initial sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Preset {
    /// The adapter's.
    #[default]
    Own,
    Gpu,
    Software,
    /// Sizes so small that small tensors are split, tiled and traversed like large ones.
    Tiny,
}

/// The changes to [`Tuning::GPU`] for [`Preset::Tiny`].
const TINY: &str = "workgroup=16,fused_workgroup=32,channels_last_threads=2,channels_last_vec4s=3,channels_first_vec4s=2,least_row_vec4s=2,\
    row_vec4s=3,row_walk=1,busy_workgroups=1048576,tile=64,prefetched_pages=2,small_tensor=512";

impl Preset {
    /// The names in a case's ID.
    const NAMES: [(&'static str, Self); 3] = [
        ("gpu", Self::Gpu),
        ("software", Self::Software),
        ("tiny", Self::Tiny),
    ];
}

/// Lowers a limit.
type Lower = fn(&mut Profile, u32);

/// Limits that can be lowered, by their names in a case's ID: those of [`Profile`]'s fields.
const LIMITS: [(&str, Lower); 10] = [
    ("max_binding", |profile, value| {
        profile.max_binding = value.into();
    }),
    ("alignment", |profile, value| {
        profile.alignment = profile.alignment.max(value.into());
    }),
    ("max_workgroups", |profile, value| {
        profile.max_workgroups = value;
    }),
    ("max_invocations", |profile, value| {
        profile.max_invocations = value;
    }),
    ("max_storage_buffers", |profile, value| {
        profile.max_storage_buffers = value;
    }),
    ("max_workgroup_storage", |profile, value| {
        profile.max_workgroup_storage = value;
    }),
    ("subgroup_size", |profile, value| {
        profile.subgroup_size = value;
    }),
    ("f16_encoder", |profile, value| {
        let encoder = F16Encoder::ALL.get(value as usize);
        profile.f16_encoder = encoder.copied().unwrap_or_default();
    }),
    ("long_words", |profile, value| {
        profile.long_words = value > 0;
    }),
    ("window_unit", |profile, value| {
        profile.window_unit = value;
    }),
];

/// Changes to an adapter's profile; as text, `gpu` or `tiny/tile=64,max_binding=4096`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Setting {
    preset: Preset,
    /// Fields of [`Tuning`] and [`LIMITS`].
    changes: Vec<(String, u32)>,
}

impl Setting {
    /// Applies a part of an ID, if it belongs to a setting; returns whether it does.
    pub fn set(&mut self, token: &str) -> bool {
        let mut presets = Preset::NAMES.into_iter();
        if let Some((_, preset)) = presets.find(|(name, _)| *name == token) {
            self.preset = preset;
            return true;
        }
        let pairs = token.split(',').map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let is_limit = LIMITS.iter().any(|(name, _)| *name == key);
            let known = is_limit || Tuning::GPU.overridden(pair).is_ok();
            let change = (key.to_owned(), value.parse().ok()?);
            known.then_some(change)
        });
        match pairs.collect::<Option<Vec<_>>>() {
            Some(pairs) => self.changes.extend(pairs),
            None => return false,
        }
        true
    }

    /// Changes a profile accordingly.
    pub fn apply(&self, profile: &mut Profile) {
        let set = |tuning: Tuning, text: &str| tuning.overridden(text).unwrap_or(tuning);
        if self.preset != Preset::Own {
            profile.long_words = self.preset != Preset::Gpu;
        }
        if self.preset == Preset::Tiny {
            profile.window_unit = 256;
        }
        profile.tuning = match self.preset {
            Preset::Own => profile.tuning,
            Preset::Gpu => Tuning::GPU,
            Preset::Software => Tuning::SOFTWARE,
            Preset::Tiny => set(Tuning::GPU, TINY),
        };
        for (key, value) in &self.changes {
            match LIMITS.iter().find(|(name, _)| name == key) {
                Some((_, set)) => set(profile, *value),
                None => profile.tuning = set(profile.tuning, &format!("{key}={value}")),
            }
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut presets = Preset::NAMES.iter();
        if let Some((name, _)) = presets.find(|(_, preset)| *preset == self.preset) {
            write!(f, "/{name}")?;
        }
        for (index, (key, value)) in self.changes.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { '/' } else { ',' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_is_a_tuning() {
        assert!(Tuning::GPU.overridden(TINY).is_ok());
    }
}
