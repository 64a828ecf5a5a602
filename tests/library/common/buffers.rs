//! A case's tensors in buffers of a device.

use super::Subject;
use super::data::Case;
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormBackwardPlan, Bound, BufferRange, DTypes, Element,
    GpuBatchNorm, Grads, ParamGrads, ParamOf,
};

/// How much room a tensor's buffer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// To the next word.
    Exact,
    /// To the next four elements.
    Padded,
}

/// One buffer a tensor.
#[derive(Clone)]
pub struct Buffers {
    pub src: wgpu::Buffer,
    pub diff_dst: wgpu::Buffer,
    pub mean: wgpu::Buffer,
    pub variance: wgpu::Buffer,
    pub gamma: Option<wgpu::Buffer>,
    pub diff_src: wgpu::Buffer,
    pub diff_gamma: Option<wgpu::Buffer>,
    pub diff_beta: Option<wgpu::Buffer>,
}

impl Buffers {
    /// Uploads the inputs; fills the outputs and all padding with ones, which are NaN as numbers.
    pub fn new<T: Element, P: ParamOf<T>>(
        subject: &Subject,
        case: &Case<T, P>,
        room: Room,
    ) -> Self {
        fn tensor<E: Element>(subject: &Subject, values: &[E], room: Room) -> wgpu::Buffer {
            let mut bytes: Vec<u8> = bytemuck::cast_slice(values).to_vec();
            let size = match room {
                Room::Exact => bytes.len().next_multiple_of(4),
                Room::Padded => values.len().next_multiple_of(4) * E::DTYPE.size() as usize,
            };
            bytes.resize(size, 0xff);
            subject.buffer(bytes.len().max(4) as u64, &bytes)
        }
        let ones_t =
            vec![bytemuck::pod_read_unaligned::<T>(&[0xff; 8][..size_of::<T>()]); case.src.len()];
        let ones_p =
            vec![bytemuck::pod_read_unaligned::<P>(&[0xff; 8][..size_of::<P>()]); case.mean.len()];
        let both = case.options.param_grads == ParamGrads::Both;
        Self {
            src: tensor(subject, &case.src, room),
            diff_dst: tensor(subject, &case.diff_dst, room),
            mean: tensor(subject, &case.mean, room),
            variance: tensor(subject, &case.variance, room),
            gamma: case.gamma.as_ref().map(|g| tensor(subject, g, room)),
            diff_src: tensor(subject, &ones_t, room),
            diff_gamma: both.then(|| tensor(subject, &ones_p, room)),
            diff_beta: both.then(|| tensor(subject, &ones_p, room)),
        }
    }

    pub fn ranges(&self) -> BatchNormBackwardBuffers<'_> {
        BatchNormBackwardBuffers {
            src: (&self.src).into(),
            diff_dst: (&self.diff_dst).into(),
            mean: (&self.mean).into(),
            variance: (&self.variance).into(),
            gamma: self.gamma.as_ref().map(BufferRange::from),
            diff_src: (&self.diff_src).into(),
            diff_gamma: self.diff_gamma.as_ref().map(BufferRange::from),
            diff_beta: self.diff_beta.as_ref().map(BufferRange::from),
            sums: None,
            workspace: None,
            beta: None,
            mask: None,
            diff_residual: None,
        }
    }

    pub fn results<T: Element, P: ParamOf<T>>(
        &self,
        subject: &Subject,
        case: &Case<T, P>,
    ) -> Grads<T, P> {
        let params = |buffer: &Option<wgpu::Buffer>| {
            let buffer = buffer.as_ref()?;
            Some(first(&subject.read(buffer), case.mean.len()))
        };
        Grads {
            diff_src: first(&subject.read(&self.diff_src), case.src.len()),
            diff_gamma: params(&self.diff_gamma),
            diff_beta: params(&self.diff_beta),
            diff_residual: None,
        }
    }
}

/// The first elements of some bytes.
pub fn first<E: Element>(bytes: &[u8], count: usize) -> Vec<E> {
    bytemuck::pod_collect_to_vec(&bytes[..count * size_of::<E>()])
}

pub fn plan<T: Element, P: ParamOf<T>>(
    subject: &Subject,
    case: &Case<T, P>,
) -> BatchNormBackwardPlan {
    GpuBatchNorm::new(&subject.gpu, case.options)
        .and_then(|layer| {
            layer.plan_backward(
                &case.shape,
                DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(P::DTYPE),
                case.gamma.is_some(),
            )
        })
        .unwrap()
}

/// A range of a buffer.
pub fn range(buffer: &wgpu::Buffer, offset: u64, size: u64) -> BufferRange<'_> {
    BufferRange {
        buffer,
        offset,
        size: Some(size),
    }
}

/// Records into an encoder of its own and submits it.
pub fn submit(subject: &Subject, bound: &Bound) {
    let descriptor = wgpu::CommandEncoderDescriptor::default();
    let mut encoder = subject.gpu.device().create_command_encoder(&descriptor);
    bound.record(&mut encoder);
    subject.gpu.queue().submit([encoder.finish()]);
}
