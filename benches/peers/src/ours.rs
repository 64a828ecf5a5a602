//! wgpu-norm's side: plan, bind, record.

use crate::Result;
use crate::case::Case;
use crate::gpu::Gpu;
use crate::measure::{Contender, Peer, clock};
use crate::set::Set;
use crate::tensors::Tensors;
use std::time::Duration;
use wgpu_norm::Bound;

pub struct Ours<'a> {
    gpu: &'a Gpu,
    case: Case,
    sets: Vec<(Set, Bound)>,
}

impl<'a> Ours<'a> {
    pub fn new(gpu: &'a Gpu, case: &Case, tensors: &Tensors) -> Result<Self> {
        let set = |_| {
            let set = Set::new(&gpu.context, case, tensors);
            let bound = set.bind(&gpu.context, case)?;
            Ok((set, bound))
        };
        Ok(Self {
            sets: (0..case.sets()).map(set).collect::<Result<_>>()?,
            case: case.clone(),
            gpu,
        })
    }

    fn submit(&self, set: usize) {
        let context = &self.gpu.context;
        let mut encoder = context.device().create_command_encoder(&Default::default());
        let (_, bound) = &self.sets[set];
        bound.record(&mut encoder);
        context.queue().submit([encoder.finish()]);
    }
}

impl Contender for Ours<'_> {
    fn peer(&self) -> Peer {
        Peer::Ours
    }

    fn name(&self) -> &'static str {
        "wgpu-norm"
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
