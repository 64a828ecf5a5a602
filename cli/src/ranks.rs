//! Processes that share a batch: each has some of the samples.
//!
//! If one of them fails, all learn of it before they go on, so that none waits for it.

use crate::failure::Failure;
use std::cell::{Cell, RefCell};
use wgpu_norm::Error;
use wgpu_norm::synchronized::AllGather;

/// Bytes of text that a rank sends to the others.
const TEXT: usize = 4096;

/// The command's access to the processes that it runs in.
pub trait Ranks {
    /// This process's number, from 0 on.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn ranks(&self) -> usize;

    /// Returns the bytes of all processes in the order of ranks. All must pass the same number of bytes.
    ///
    /// # Errors
    ///
    /// A message, if the others cannot be reached.
    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String>;
}

/// All ranks, as the operators see them.
pub struct Group {
    ranks: RefCell<Box<dyn Ranks>>,
    pub rank: usize,
    pub size: usize,
    has_met: Cell<bool>,
}

impl Group {
    pub fn new(ranks: impl Ranks + 'static) -> Self {
        Self {
            rank: ranks.rank(),
            size: ranks.ranks(),
            has_met: Cell::new(false),
            ranks: RefCell::new(Box::new(ranks)),
        }
    }

    /// Whether the ranks have exchanged anything yet.
    pub fn has_met(&self) -> bool {
        self.has_met.get()
    }

    /// This rank's result, or a failure on all ranks if any of them failed.
    pub fn all<T>(&self, done: Result<T, Failure>) -> Result<T, Failure> {
        let said = match &done {
            Ok(_) => String::new(),
            Err(failure) => failure.to_string(),
        };
        let all = self.texts(&said)?.into_iter().enumerate();
        let done = done?;
        match all.into_iter().find(|(_, said)| !said.is_empty()) {
            Some((rank, failure)) => Err(Failure::Rank { rank, failure }),
            None => Ok(done),
        }
    }

    /// A failure on all ranks unless their texts are equal.
    pub fn agree(&self, what: &str, own: &str) -> Result<(), Failure> {
        let all = self.texts(own)?;
        let Some((first, others)) = all.split_first() else {
            return Ok(());
        };
        match (1..).zip(others).find(|(_, said)| *said != first) {
            Some((rank, other)) => Err(Failure::Ranks(format!(
                "expected the same {what} on all, got {first} on rank 0 and {other} on rank {rank}"
            ))),
            None => Ok(()),
        }
    }

    /// The texts of all ranks.
    pub fn texts(&self, own: &str) -> Result<Vec<String>, Failure> {
        let mut bytes: Vec<u8> = own.bytes().take(TEXT).collect();
        bytes.resize(TEXT, 0);
        let all = self.gather(&bytes)?;
        let texts = all.chunks(TEXT).map(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            text.trim_end_matches('\0').to_owned()
        });
        Ok(texts.collect())
    }

    /// The bytes of all ranks, equally many from each.
    pub fn gather(&self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        self.has_met.set(true);
        let mut ranks = self.ranks.borrow_mut();
        ranks.all_gather(bytes).map_err(Failure::Ranks)
    }

    /// This rank's share of `all` items: a contiguous range that begins at a multiple of `unit`.
    pub fn share(&self, all: usize, unit: usize) -> std::ops::Range<usize> {
        let units = all.div_ceil(unit.max(1));
        let at = |rank: usize| (units * rank / self.size.max(1) * unit).min(all);
        at(self.rank)..at(self.rank + 1)
    }
}

impl AllGather for &Group {
    type Error = Failure;

    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.size
    }

    async fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        self.gather(bytes)
    }
}

/// A failure if `mpirun` has started several of this process: each would do all of the work.
pub fn refuse_many() -> Result<(), Failure> {
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        let ranks = std::env::var(variable).ok();
        let ranks = ranks.and_then(|ranks| ranks.parse::<usize>().ok());
        if let Some(ranks @ 2..) = ranks {
            return Err(Failure::Library(Error::argument(
                "mpirun",
                "one process, or wgpu-norm-mpi, whose processes share the work",
                format_args!("{ranks} processes ({variable})"),
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Alone {
        rank: usize,
        ranks: usize,
    }

    impl Ranks for Alone {
        fn rank(&self) -> usize {
            self.rank
        }
        fn ranks(&self) -> usize {
            self.ranks
        }
        fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
            Ok(bytes.repeat(self.ranks))
        }
    }

    #[test]
    fn shares_are_all_and_begin_at_units() {
        for (all, unit) in [(0, 1), (1, 1), (10, 1), (10, 4), (100, 32), (3, 8)] {
            for ranks in 1..7 {
                let mut end = 0;
                for rank in 0..ranks {
                    let share = Group::new(Alone { rank, ranks }).share(all, unit);
                    assert_eq!(share.start, end);
                    assert!(share.start.is_multiple_of(unit) || share.start == all);
                    end = share.end;
                }
                assert_eq!(end, all);
            }
        }
    }

    #[test]
    fn one_failure_is_everyones() {
        let group = Group::new(Alone { rank: 1, ranks: 3 });
        assert_eq!(group.all(Ok(7)).unwrap(), 7);
        let failed = group.all::<()>(Err(Failure::RankOne)).unwrap_err();
        assert!(matches!(failed, Failure::RankOne));
    }
}
