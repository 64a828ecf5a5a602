//! The header of a safetensors file.

use crate::text::excerpt;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// The maximum number of tensors in a file: models of any size have fewer, and this many take a second to read.
const MOST_TENSORS: usize = 100_000;

/// The key under which the format stores text.
const METADATA: &str = "__metadata__";

/// The contents of a header, not checked yet.
struct Header {
    metadata: Option<Texts>,
    tensors: HashMap<String, TensorInfo>,
}

/// Text by keys of which none is given twice.
struct Texts(HashMap<String, String>);

/// Reads a header, or says what is wrong with it and with which tensor.
///
/// Does not use `SafeTensors::read_metadata`, which needs the whole file in memory, adds up hostile sizes without
/// checking for overflow, and seldom names the tensor.
pub fn parse(json: &[u8]) -> Result<Metadata, String> {
    let header: Header =
        serde_json::from_slice(json).map_err(|error| excerpt(&error.to_string()))?;
    for (name, info) in &header.tensors {
        check(name, info)?;
    }
    let mut tensors: Vec<_> = header.tensors.into_iter().collect();
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let texts = header.metadata.map(|Texts(texts)| texts);
    Metadata::new(texts, tensors).map_err(|error| excerpt(&error.to_string()))
}

/// Checks one tensor: it must have as many bytes as its shape and element type require.
fn check(name: &str, info: &TensorInfo) -> Result<(), String> {
    let (start, end) = info.data_offsets;
    let message = match end.checked_sub(start) {
        None => "data_offsets end before they begin".to_owned(),
        Some(bytes) => {
            let alone = TensorInfo {
                data_offsets: (0, bytes),
                ..info.clone()
            };
            match Metadata::new(None, vec![(name.to_owned(), alone)]) {
                Ok(_) => return Ok(()),
                Err(error) => error.to_string(),
            }
        }
    };
    Err(format!("tensor {}: {}", excerpt(name), excerpt(&message)))
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header {
            metadata: None,
            tensors: HashMap::new(),
        };
        while let Some(name) = map.next_key::<String>()? {
            let named = |what: &str, error: A::Error| {
                A::Error::custom(format!("{what}: {}", excerpt(&error.to_string())))
            };
            if name == METADATA {
                if header.metadata.is_some() {
                    return Err(A::Error::custom(format!("{METADATA}: given twice")));
                }
                header.metadata = map.next_value().map_err(|e| named(METADATA, e))?;
                continue;
            }
            if header.tensors.len() == MOST_TENSORS {
                let message = format!("more than {MOST_TENSORS} tensors");
                return Err(A::Error::custom(message));
            }
            let tensor = format!("tensor {}", excerpt(&name));
            let info = map.next_value().map_err(|e| named(&tensor, e))?;
            if header.tensors.insert(name, info).is_some() {
                return Err(A::Error::custom(format!("{tensor}: given twice")));
            }
        }
        Ok(header)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextEntries)
    }
}

struct TextEntries;

impl<'de> Visitor<'de> for TextEntries {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        let mut texts = HashMap::new();
        while let Some((key, text)) = map.next_entry::<String, String>()? {
            if texts.contains_key(&key) {
                return Err(A::Error::custom(format!("{}: given twice", excerpt(&key))));
            }
            texts.insert(key, text);
        }
        Ok(Texts(texts))
    }
}
