//! Random operations in random ways, compared with the float64 reference, with guard bytes around every tensor.

use crate::{Fault, Report, Share};
use pollster::block_on;
use wgpu_norm_verify::{Case, Outcome};

/// The largest tensors have so many elements.
const MOST: u64 = 1 << 18;

pub fn run(share: &Share<'_>) -> Report {
    share.each(|draw, report| {
        for id in draw.cases(MOST, 5) {
            report.attempt(&id, || {
                let case: Case = id.parse()?;
                match block_on(case.run(share.gpu))? {
                    Outcome::Ran { fault: None, .. } => Ok(()),
                    Outcome::Ran {
                        fault: Some(fault), ..
                    } => Err(fault.into()),
                    _ => Err(Fault::Refused),
                }
            });
        }
    })
}
