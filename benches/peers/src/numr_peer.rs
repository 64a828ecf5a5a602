//! numr's normalization, on the same adapter but a device of its own.

use crate::Result;
use crate::case::{Case, EPSILON, Groups, Op};
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::tensors::Tensors;
use numr::autograd::ops::{GroupNormBackward, LayerNormBackward, RmsNormBackward};
use numr::autograd::{GradFn, TensorId};
use numr::ops::NormalizationOps;
use numr::runtime::RuntimeClient;
use numr::runtime::wgpu::{WgpuClient, WgpuDevice, WgpuRuntime};
use std::time::Duration;
use wgpu_norm::Norm;

type Tensor = numr::tensor::Tensor<WgpuRuntime>;

const EPS: f32 = EPSILON as f32;

/// It has no batch norm, and instance norm only as group norm with a group for each channel.
pub fn operators() -> Vec<Op> {
    let mut all = Op::all();
    all.retain(|op| !matches!(op.norm, Norm::Batch(_)));
    all
}

/// numr opens an adapter by its place in wgpu's list.
pub fn client(gpu: &Gpu) -> Result<WgpuClient> {
    let adapters = wgpu::Instance::default().enumerate_adapters(wgpu::Backends::all());
    let ours = (&gpu.info.name, gpu.info.backend, &gpu.info.driver_info);
    let place = pollster::block_on(adapters).iter().position(|adapter| {
        let info = adapter.get_info();
        (&info.name, info.backend, &info.driver_info) == ours
    });
    let place = place.ok_or("numr does not see this adapter")?;
    Ok(WgpuClient::new(WgpuDevice::new(place))?)
}

/// The results with a set of tensors.
type Run = fn(&Numr, usize) -> Result<Vec<Tensor>>;

#[derive(Clone)]
pub struct Numr {
    client: WgpuClient,
    name: &'static str,
    run: Run,
    norm: Norm,
    /// Of a sample's channels.
    groups: usize,
    src: Vec<Tensor>,
    /// Empty where none is added to src.
    residual: Vec<Tensor>,
    /// Empty for a forward pass.
    diff_dst: Vec<Tensor>,
    gamma: Tensor,
    beta: Tensor,
}

impl Numr {
    /// A function with kernels of its own, where there is one, and what its autograd composes of tensor operations.
    pub fn ways(client: &WgpuClient, case: &Case, tensors: &Tensors) -> Result<Vec<Self>> {
        let ways: &[(&'static str, Run)] = match (case.is_gradient(), case.groups) {
            (false, _) => &[("kernel", Self::forward)],
            (true, Groups::Rows) => &[("kernel", Self::backward), ("autograd", Self::autograd)],
            (true, _) => &[("autograd", Self::autograd)],
        };
        let upload = |values: &[f32], shape: &[usize]| {
            Tensor::from_slice(values, shape, client.device()).map_err(crate::Error::from)
        };
        let whole = |values: &[f32]| -> Result<Vec<Tensor>> {
            let sets = if values.is_empty() { 0 } else { case.sets() };
            let each = (0..sets).map(|_| upload(values, &case.operation.shape));
            each.collect()
        };
        let channels = [tensors.gamma.len()];
        let first = Self {
            client: client.clone(),
            name: "",
            run: Self::forward,
            norm: case.operation.norm.clone(),
            groups: case.channel_groups(),
            src: whole(&tensors.src)?,
            residual: whole(&tensors.residual)?,
            diff_dst: whole(&tensors.diff_dst)?,
            gamma: upload(&tensors.gamma, &channels)?,
            beta: upload(&tensors.beta, &channels)?,
        };
        let ways = ways.iter().map(|&(name, run)| Self {
            name,
            run,
            ..first.clone() // shares the tensors
        });
        Ok(ways.collect())
    }

    fn forward(&self, set: usize) -> Result<Vec<Tensor>> {
        let (client, src) = (&self.client, &self.src[set]);
        let (gamma, beta) = (&self.gamma, &self.beta);
        let (dst, sum) = match (&self.norm, self.residual.get(set)) {
            (Norm::Layer { .. }, Some(residual)) => {
                client.fused_add_layer_norm(src, residual, gamma, beta, EPS)?
            }
            (Norm::Rms { .. }, Some(residual)) => {
                client.fused_add_rms_norm(src, residual, gamma, EPS)?
            }
            (Norm::Layer { .. }, None) => {
                return Ok(vec![client.layer_norm(src, gamma, beta, EPS)?]);
            }
            (Norm::Rms { .. }, None) => return Ok(vec![client.rms_norm(src, gamma, EPS)?]),
            _ => {
                return Ok(vec![client.group_norm(
                    src,
                    gamma,
                    beta,
                    self.groups,
                    EPS,
                )?]);
            }
        };
        Ok(vec![dst, sum])
    }

    /// Of the sum of src and a residual, as which src is given.
    fn backward(&self, set: usize) -> Result<Vec<Tensor>> {
        let (diff_dst, src, gamma) = (&self.diff_dst[set], &self.src[set], &self.gamma);
        if let Norm::Rms { .. } = self.norm {
            let (diff_src, diff_gamma) = self
                .client
                .fused_add_rms_norm_bwd(diff_dst, src, gamma, EPS)?;
            return Ok(vec![diff_src, diff_gamma]);
        }
        let (diff_src, diff_gamma, diff_beta) = self
            .client
            .fused_add_layer_norm_bwd(diff_dst, src, gamma, &self.beta, EPS)?;
        Ok(vec![diff_src, diff_gamma, diff_beta])
    }

    /// The tape's node of the layer, which recomputes the statistics.
    fn autograd(&self, set: usize) -> Result<Vec<Tensor>> {
        let id = TensorId::new;
        let (src, gamma) = (self.src[set].clone(), self.gamma.clone());
        let node: Box<dyn GradFn<WgpuRuntime>> = match &self.norm {
            Norm::Layer { .. } => {
                let node =
                    LayerNormBackward::new(id(), id(), id(), src, gamma, EPS, None, None, None);
                Box::new(node)
            }
            Norm::Rms { .. } => Box::new(RmsNormBackward::new(
                id(),
                id(),
                src,
                gamma,
                EPS,
                None,
                None,
            )),
            _ => Box::new(GroupNormBackward::new(
                id(),
                id(),
                id(),
                src,
                gamma,
                self.groups,
                EPS,
                None,
                None,
                None,
            )),
        };
        let gradients = node.backward_all(&self.diff_dst[set])?;
        Ok(gradients.into_iter().flatten().collect())
    }
}

impl Contender for Numr {
    fn peer(&self) -> Peer {
        Peer::Numr
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        let results = (self.run)(self, 0)?.into_iter();
        results.map(|result| Ok(result.try_to_vec()?)).collect()
    }

    fn time(&self, set: usize) -> Result<Duration> {
        // numr's own wait ends after a minute.
        let wait = || {
            let waited = self
                .client
                .wgpu_device()
                .poll(wgpu::PollType::wait_indefinitely());
            waited
                .map(drop)
                .map_err(|error| format!("waiting for numr: {error}").into())
        };
        clock(|| (self.run)(self, set), wait)
    }
}
