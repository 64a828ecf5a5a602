//! Tensors in host memory, as a stream reads and writes them.

use super::data::{Problem, Values};
use super::polls::one_more_poll;
use std::collections::HashMap;
use wgpu_norm::stream::Storage;
use wgpu_norm::{Error, Tensor};

pub struct Memory {
    pub tensors: HashMap<Tensor, Vec<u8>>,
    /// The largest number of bytes requested at once.
    pub most: usize,
}

impl Storage for Memory {
    type Error = Error;

    async fn read(&mut self, tensor: Tensor, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        one_more_poll().await;
        self.most = self.most.max(to.len());
        to.copy_from_slice(&self.tensors[&tensor][offset as usize..][..to.len()]);
        Ok(())
    }

    async fn write(&mut self, tensor: Tensor, offset: u64, from: &[u8]) -> Result<(), Error> {
        one_more_poll().await;
        let bytes = self.tensors.get_mut(&tensor).unwrap();
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

impl Memory {
    /// Inputs, and results initialized to values that no result has. With an odd number of 16-bit elements, the last
    /// word is filled with 0.
    pub fn new(problem: &Problem) -> Self {
        let all = problem.inputs.iter().cloned().chain(problem.results());
        let tensors = all.map(|values| {
            let mut bytes = values.bytes;
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            (values.used.tensor, bytes)
        });
        Self {
            tensors: tensors.collect(),
            most: 0,
        }
    }

    /// The results of a problem, without what fills words.
    pub fn results(&self, problem: &Problem) -> Vec<Values> {
        let mut results = problem.results();
        for values in &mut results {
            let own = &self.tensors[&values.used.tensor];
            values.bytes = own[..values.bytes.len()].to_vec();
        }
        results
    }
}
