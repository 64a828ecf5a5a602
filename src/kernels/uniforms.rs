//! The values of a kernel's uniform struct, and the bytes that hold them.

use super::describe::{Uniform, Value};
use crate::element::DType;

/// The values of a kernel's uniform struct, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Uniforms(Vec<Value>);

impl Uniforms {
    pub fn new<U: Uniform>(of: &U) -> Self {
        let mut values = Vec::with_capacity(size_of::<U>() / 4);
        of.values(&mut values);
        Self(values)
    }

    /// The struct as WGSL lays it out: scalars one after another, each aligned to its size, the whole rounded up to
    /// 16 bytes.
    pub fn bytes(&self, accumulator: DType) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &value in &self.0 {
            match value {
                Value::Word(word) => bytes.extend(word.to_ne_bytes()),
                Value::Real(real) if accumulator == DType::F64 => {
                    bytes.resize(bytes.len().next_multiple_of(8), 0);
                    bytes.extend(real.to_ne_bytes());
                }
                Value::Real(real) => bytes.extend((real as f32).to_ne_bytes()),
            }
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Uniforms {
        /// Values of these kinds, all different.
        pub fn samples(fields: &[(&'static str, bool)]) -> Self {
            let values = (1..).zip(fields).map(|(number, &(_, real))| {
                if real {
                    Value::Real(number.into())
                } else {
                    Value::Word(number)
                }
            });
            Self(values.collect())
        }

        pub fn values(&self) -> &[Value] {
            &self.0
        }
    }
}
