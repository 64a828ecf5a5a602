//! Plans, each made once for an operation on a device.

use crate::device::context;
use crate::f16::encoder;
use crate::profile::profile;
use crate::way::Launch;
use burn::backend::CubeDevice;
use burn::backend::fusion::custom::TensorSpec;
use burn::tensor::{DType as BurnDType, Shape};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wgpu_norm::export::Dispatch;
use wgpu_norm::{
    Channels, DType, DataFormat, Error, F16Encoder, Format, Norm, Operation, Plan, Tensor,
    TensorUse,
};

/// A layer's pass on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    pub device: CubeDevice,
    /// Chosen when the layer is called, as Burn may run it later.
    pub launch: Launch,
    pub operation: Operation,
    /// Burn's element types of src, and of gamma and beta. Burn's flex32 is f32 to wgpu-norm.
    pub data: BurnDType,
    pub params: BurnDType,
    /// Whether it may be differentiated.
    pub differentiated: bool,
}

impl Pass {
    /// A tensor's description for Burn.
    fn spec(&self, used: &TensorUse) -> (Tensor, TensorSpec) {
        let (shape, dtype) = match used.format {
            Format::Elements(dtype) => {
                let dtype = match (used.tensor, dtype) {
                    (tensor, _) if tensor.is_data() => self.data,
                    (tensor, _) if tensor.is_param() => self.params,
                    (_, DType::F16) => BurnDType::F16,
                    (_, DType::Bf16) => BurnDType::BF16,
                    (_, DType::F64) => BurnDType::F64,
                    _ => BurnDType::F32,
                };
                (used.shape.clone(), dtype)
            }
            _ => (vec![used.elements() as usize], BurnDType::U32),
        };
        (used.tensor, TensorSpec::new(Shape::from(shape), dtype))
    }
}

/// The number of bytes that may be bound of each tensor's buffer.
type Rooms = Vec<(Tensor, u64)>;

/// A pass's plan, and its dispatches for the sizes of its tensors' buffers so far.
#[derive(Debug)]
pub struct Prepared {
    pub launch: Launch,
    pub plan: Plan,
    /// The tensors that it reads.
    pub inputs: Vec<(Tensor, TensorSpec)>,
    /// The tensors that it writes.
    pub outputs: Vec<(Tensor, TensorSpec)>,
    /// If it may be differentiated: its gradient with parameter gradients, and without.
    pub gradients: Option<[Arc<Self>; 2]>,
    /// The same pass on tensors whose channels are last in memory.
    pub channels_last: Option<Arc<Self>>,
    dispatches: Mutex<HashMap<Rooms, Arc<Vec<Dispatch>>>>,
}

impl Prepared {
    fn new(pass: &Pass, f16_encoder: F16Encoder) -> Result<Self, Error> {
        let profile = match pass.launch {
            Launch::Kernels => {
                let mut profile = profile(pass.device.client().properties());
                profile.f16_encoder = f16_encoder;
                profile
            }
            Launch::Submission => context(&pass.device)?.profile().clone(),
        };
        let plan = pass.operation.plan(&profile)?;
        let tensors = pass.operation.tensors()?;
        let (outputs, inputs): (Vec<_>, Vec<_>) =
            tensors.iter().partition(|used| used.access.writes());
        let specs =
            |tensors: Vec<&TensorUse>| tensors.into_iter().map(|used| pass.spec(used)).collect();
        let planned = |operation| {
            let pass = Pass {
                operation,
                differentiated: false,
                ..pass.clone()
            };
            Self::new(&pass, f16_encoder).map(Arc::new)
        };
        // A mask's bits are in the order of memory, and its gradient may be given src in another order.
        let masked = tensors
            .iter()
            .any(|used| !matches!(used.format, Format::Elements(_)));
        let channels_last = channels_last(&pass.operation).filter(|_| !masked);
        Ok(Self {
            launch: pass.launch,
            plan,
            inputs: specs(inputs),
            outputs: specs(outputs),
            channels_last: channels_last.map(planned).transpose()?,
            gradients: match pass.differentiated {
                true => {
                    let all = pass.operation.gradient()?;
                    Some([planned(all.clone())?, planned(all.without_param_grads())?])
                }
                false => None,
            },
            dispatches: Mutex::default(),
        })
    }

    /// The plan's dispatches on buffers of these sizes.
    pub fn dispatches(&self, rooms: Rooms) -> Result<Arc<Vec<Dispatch>>, Error> {
        let mut known = lock(&self.dispatches);
        if let Some(dispatches) = known.get(&rooms) {
            return Ok(dispatches.clone());
        }
        let room = |tensor| {
            let mut rooms = rooms.iter();
            Some(rooms.find(|(known, _)| *known == tensor)?.1)
        };
        let dispatches = Arc::new(self.plan.dispatches(room)?);
        known.insert(rooms, dispatches.clone());
        Ok(dispatches)
    }
}

/// The same operation with the channels last; `None` if it has no channels behind the samples.
fn channels_last(operation: &Operation) -> Option<Operation> {
    let mut last = operation.clone();
    last.norm = match &operation.norm {
        Norm::Batch(Channels::Axis(DataFormat::Ncx)) => {
            Norm::Batch(Channels::Axis(DataFormat::Nxc))
        }
        Norm::Group {
            groups,
            format: DataFormat::Ncx,
            ..
        } => Norm::group(*groups, DataFormat::Nxc),
        Norm::Axes {
            axes, param_axes, ..
        } if (&axes[..], &param_axes[..]) == (&[1], &[1]) => Norm::axes(&[-1], &[-1]),
        _ => return None,
    };
    last.shape.get_mut(1..)?.rotate_left(1);
    Some(last)
}

type Known = HashMap<Pass, Result<Arc<Prepared>, Error>>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// The number of passes that are kept. If there are more, as when every batch has another shape, all are dropped and
/// planned anew.
const MOST: usize = 4096;

/// The plan of a pass.
pub fn prepare(pass: Pass) -> Result<Arc<Prepared>, Error> {
    // The probe waits for the device, so it comes before the lock.
    let f16_encoder = if pass.data == BurnDType::F16 && pass.launch == Launch::Kernels {
        encoder(&pass.device)
    } else {
        F16Encoder::Integers
    };
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    if let Some(prepared) = known.get(&pass) {
        return prepared.clone();
    }
    if known.len() >= MOST {
        known.clear();
    }
    let prepared = Prepared::new(&pass, f16_encoder).map(Arc::new);
    known.insert(pass, prepared.clone());
    prepared
}

/// No code leaves anything half-done while it holds a lock, so a panic there does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
