//! The bytes of a kernel's uniform struct: u32 words, then values of the accumulator's type.

use super::Kernel;
use crate::DType;

/// Named values for a kernel's uniform struct.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Uniforms {
    words: Vec<u32>,
    reals: Vec<f64>,
}

impl Uniforms {
    /// The fields of `kernel`'s struct; a field that is not named is 0.
    pub fn new(
        kernel: Kernel,
        words: &[(&'static str, u32)],
        reals: &[(&'static str, f64)],
    ) -> Self {
        let entry = kernel.entry();
        debug_assert!(
            words
                .iter()
                .all(|(name, _)| entry.all_words().any(|word| word == *name))
        );
        debug_assert!(reals.iter().all(|(name, _)| entry.reals.contains(name)));
        fn pick<'a, V: Copy + Default>(
            fields: impl Iterator<Item = &'a str>,
            values: &[(&str, V)],
        ) -> Vec<V> {
            fields
                .map(|field| {
                    let value = values.iter().find(|(name, _)| *name == field);
                    value.map_or_else(V::default, |&(_, value)| value)
                })
                .collect()
        }
        Self {
            words: pick(entry.all_words(), words),
            reals: pick(entry.reals.iter().copied(), reals),
        }
    }

    /// A word of `kernel`'s struct, if it has one of this name.
    pub fn word(&self, kernel: Kernel, name: &str) -> Option<u32> {
        let mut fields = kernel.entry().all_words().zip(&self.words);
        fields
            .find(|(field, _)| *field == name)
            .map(|(_, &word)| word)
    }

    /// The struct as WGSL lays it out: scalars one after another, each aligned to its size, the whole
    /// rounded up to 16 bytes.
    pub fn bytes(&self, accumulator: DType) -> Vec<u8> {
        let mut bytes: Vec<u8> = bytemuck::cast_slice(&self.words).to_vec();
        for &real in &self.reals {
            if accumulator == DType::F64 {
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes.extend_from_slice(&real.to_ne_bytes());
            } else {
                bytes.extend_from_slice(&(real as f32).to_ne_bytes());
            }
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes
    }
}
