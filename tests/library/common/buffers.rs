//! A case's tensors in buffers of a device.

use super::Subject;
use super::data::Case;
use wgpu_norm::{
    BatchNormBackwardBuffers, BatchNormBackwardPlan, Bound, BufferRange, DTypes, Element,
    GpuBatchNorm, Grads, LayerNormBackwardArgs, LayerNormBackwardBuffers, LayerNormBackwardPlan,
    ParamGrads, ParamOf,
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

/// What a layer-norm plan leaves in buffers with so much room, of which what is behind a tensor is filled with ones
/// (NaNs), diff_src over diff_dst. Behind that only the rest of its last word may change, to 0.
pub fn recorded_layer_norm<T: Element, P: ParamOf<T>>(
    subject: &Subject,
    plan: &LayerNormBackwardPlan,
    args: &LayerNormBackwardArgs<'_, T, P, P>,
    room: Room,
) -> Grads<T, P> {
    fn tensor<E: Element>(subject: &Subject, values: &[E], room: Room) -> wgpu::Buffer {
        let mut bytes = bytemuck::cast_slice(values).to_vec();
        let size = match room {
            Room::Exact => bytes.len().next_multiple_of(4),
            Room::Padded => values.len().next_multiple_of(4) * size_of::<E>(),
        };
        bytes.resize(size, 0xff);
        subject.buffer(size as u64, &bytes)
    }
    let src = tensor(subject, args.src, room);
    let diff_src = tensor(subject, args.diff_dst, room);
    let mean = tensor(subject, args.mean, room);
    let variance = tensor(subject, args.variance, room);
    let gamma = args.gamma.map(|gamma| tensor(subject, gamma, room));
    let output = |size: Option<u64>| size.map(|size| subject.buffer(size, &[]));
    let sizes = match room {
        Room::Exact => plan.sizes(),
        Room::Padded => plan.padded_sizes(),
    };
    let (diff_gamma, diff_beta) = (output(sizes.diff_gamma), output(sizes.diff_beta));
    let buffers = LayerNormBackwardBuffers {
        src: (&src).into(),
        diff_dst: (&diff_src).into(),
        mean: (&mean).into(),
        variance: (&variance).into(),
        gamma: gamma.as_ref().map(BufferRange::from),
        diff_src: (&diff_src).into(),
        diff_gamma: diff_gamma.as_ref().map(BufferRange::from),
        diff_beta: diff_beta.as_ref().map(BufferRange::from),
        workspace: None,
    };
    submit(subject, &plan.bind(&subject.gpu, &buffers).unwrap());
    let params = |buffer: &wgpu::Buffer| {
        let count = args.gamma.map_or(0, <[P]>::len);
        first(&subject.read(buffer), count)
    };
    let diff_src = subject.read(&diff_src);
    let end = size_of_val(args.src);
    let behind = &diff_src[end..];
    let (word, rest) = behind.split_at(end.next_multiple_of(4) - end);
    assert!(word.iter().all(|byte| *byte == 0), "{behind:?}");
    assert!(rest.iter().all(|byte| *byte == 0xff), "{behind:?}");
    Grads {
        diff_src: first(&diff_src, args.src.len()),
        diff_gamma: diff_gamma.as_ref().map(params),
        diff_beta: diff_beta.as_ref().map(params),
        diff_residual: None,
    }
}
