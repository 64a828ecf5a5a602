//! Lays out the workspace: records of four reals, in regions one after another.

use super::limits::Unfit;
use super::sizes::word;
use crate::element::DType;
use crate::error::Error;
use crate::profile::MAX_BINDING;

/// Hands out regions of the workspace.
#[derive(Clone, Copy)]
pub(crate) struct Workspace {
    records: u64,
    record_bytes: u64,
}

/// A region of the workspace, by its first record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    pub first: u32,
}

impl Workspace {
    pub fn new(accumulator: DType) -> Self {
        Self {
            records: 0,
            record_bytes: 4 * accumulator.size(),
        }
    }

    /// Reserves `records` records.
    pub fn reserve(&mut self, records: u64) -> Result<Region, Unfit> {
        let first = self.records;
        // Whole multiples of 16 records keep every region aligned to 256 bytes.
        self.records = first.saturating_add(records.max(1)).next_multiple_of(16);
        match u32::try_from(self.records) {
            Ok(_) => Ok(Region { first: word(first) }),
            // No profile allows bindings of more bytes than that, let alone records.
            Err(_) => Err(Unfit::Room(Error::Limit {
                what: "the workspace".to_owned(),
                limit: MAX_BINDING,
                needed: self.bytes(),
                available: u64::from(u32::MAX),
            })),
        }
    }

    /// Grows to the size of another workspace that began as a copy of this one, if that is larger.
    pub fn grow_to(&mut self, other: &Self) {
        self.records = self.records.max(other.records);
    }

    pub fn bytes(&self) -> u64 {
        self.records.saturating_mul(self.record_bytes)
    }
}
