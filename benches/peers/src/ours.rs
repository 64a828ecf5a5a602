//! wgpu-norm's side: plan, bind, record.

use crate::Result;
use crate::case::Case;
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::set::Set;
use crate::tensors::Tensors;
use std::time::Duration;
use wgpu_norm::{Bound, GpuContext};

pub struct Ours<'a> {
    peer: Peer,
    gpu: &'a Gpu,
    /// Of the device, with the sizes that are measured.
    context: &'a GpuContext,
    case: Case,
    sets: Vec<(Set, Bound)>,
}

impl<'a> Ours<'a> {
    pub fn new(
        peer: Peer,
        gpu: &'a Gpu,
        context: &'a GpuContext,
        case: &Case,
        tensors: &Tensors,
    ) -> Result<Self> {
        let set = |_| {
            let set = Set::new(context, case, tensors);
            let bound = set.bind(context, case)?;
            Ok((set, bound))
        };
        Ok(Self {
            peer,
            context,
            sets: (0..case.sets()).map(set).collect::<Result<_>>()?,
            case: case.clone(),
            gpu,
        })
    }

    fn submit(&self, set: usize) {
        let mut encoder = self
            .context
            .device()
            .create_command_encoder(&Default::default());
        let (_, bound) = &self.sets[set];
        bound.record(&mut encoder);
        self.context.queue().submit([encoder.finish()]);
    }
}

impl Contender for Ours<'_> {
    fn peer(&self) -> Peer {
        self.peer
    }

    fn name(&self) -> &'static str {
        "plan"
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        self.submit(0);
        let (set, _) = &self.sets[0];
        let results = set.results(self.case.op).into_iter();
        results.map(|result| result.read(self.gpu)).collect()
    }

    fn time(&self, set: usize) -> Result<Duration> {
        let enqueue = || {
            self.submit(set);
            Ok(())
        };
        clock(enqueue, || self.gpu.wait())
    }
}
