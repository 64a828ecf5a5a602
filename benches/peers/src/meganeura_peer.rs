//! Meganeura's normalization layers: a graph of the layer, or of its gradient, for each set of tensors.

use crate::Result;
use crate::case::{Case, EPSILON, Groups, Op};
use crate::gpu::Gpu;
use crate::measure::{Contender, clock};
use crate::peer::Peer;
use crate::tensors::Tensors;
use meganeura::graph::Op as Node;
use meganeura::{Graph, Mode, Session, SessionConfig, TensorType};
use std::cell::RefCell;
use std::time::Duration;
use wgpu_norm::{Norm, Pass};

/// It has no batch norm, instance norm only as group norm with a group for each channel, and no residual with a norm.
pub fn operators() -> Vec<Op> {
    let is_there = |norm: &Norm| !matches!(norm, Norm::Batch(_) | Norm::Instance { .. });
    Op::all()
        .into_iter()
        .filter(|op| is_there(&op.norm) && !op.has_residual())
        .collect()
}

/// One session has one set of buffers.
pub struct Sessions {
    sessions: Vec<RefCell<Session>>,
    /// How many elements each output of the graph has.
    outputs: Vec<usize>,
    channels: usize,
}

impl Sessions {
    pub fn new(gpu: &Gpu, case: &Case, tensors: &Tensors) -> Result<Self> {
        let (graph, outputs) = graph(case)?;
        let session = |_| {
            let config = SessionConfig {
                // The graph of a gradient has the nodes that a differentiated one would have.
                mode: Mode::Inference,
                ..SessionConfig::default()
            };
            let (mut session, _) = meganeura::build(&graph, config);
            same_driver(gpu, &session)?;
            session.set_input("src", &tensors.src);
            session.set_parameter("gamma", &tensors.gamma);
            if case.is_gradient() {
                session.set_input("diff_dst", &tensors.diff_dst);
            } else if case.centers() {
                session.set_parameter("beta", &tensors.beta);
            }
            Ok(RefCell::new(session))
        };
        Ok(Self {
            sessions: (0..case.sets()).map(session).collect::<Result<_>>()?,
            outputs,
            channels: tensors.gamma.len(),
        })
    }
}

/// Meganeura opens a device of its own, the first that suits it.
fn same_driver(gpu: &Gpu, session: &Session) -> Result<()> {
    let device = session.device_information();
    let (name, driver) = (&device.device_name, &device.driver_info);
    match (name, driver) == (&gpu.info.name, &gpu.info.driver_info) {
        true => Ok(()),
        false => Err(format!("Meganeura took {name}, {driver}").into()),
    }
}

/// The graph, and the elements of its outputs. Gradients are made of the nodes that Meganeura's own differentiation
/// puts after a layer, without the loss and the forward pass in front.
fn graph(case: &Case) -> Result<(Graph, Vec<usize>)> {
    let [outer, channels, inner] = case.grid;
    let elements = case.elements();
    let shape = match case.groups {
        Groups::Rows => vec![outer, channels],
        _ => vec![elements],
    };
    let size = |size: usize| u32::try_from(size).map_err(|_| "too large for Meganeura");
    let (samples, planes, plane) = (size(outer)?, size(channels)?, size(inner)?);
    let groups = size(case.channel_groups())?;
    let eps = EPSILON as f32;

    let mut graph = Graph::new();
    let src = graph.input("src", &shape);
    let gamma = graph.parameter("gamma", &[channels]);
    // What a gradient or a forward pass takes beside src and gamma; RMS norm's forward pass takes nothing.
    let second = match case.is_gradient() {
        true => graph.input("diff_dst", &shape),
        false if case.centers() => graph.parameter("beta", &[channels]),
        false => gamma,
    };
    if case.has_residual() {
        return Err(format!("Meganeura has no {}", case.op()).into());
    }
    let (nodes, outputs) = match (&case.operation.norm, &case.operation.pass) {
        (Norm::Layer { .. }, Pass::Forward(_)) => {
            let dst = graph.layer_norm(src, gamma, second, eps);
            (vec![dst], vec![elements])
        }
        (Norm::Rms { .. }, Pass::Forward(_)) => {
            (vec![graph.rms_norm(src, gamma, eps)], vec![elements])
        }
        (Norm::Group { .. } | Norm::Instance { .. }, Pass::Forward(_)) => {
            let dst = graph.group_norm(src, gamma, second, samples, planes, plane, groups, eps);
            (vec![dst], vec![elements])
        }
        (Norm::Layer { .. }, Pass::Backward(_)) => {
            let diff_src = graph.layer_norm_grad_x(second, src, gamma, eps);
            let diff_gamma = graph.layer_norm_grad_wb(second, src, gamma, eps);
            let of_columns = TensorType::f32(vec![channels]);
            let diff_beta = graph.add_raw_node(Node::SumRows, vec![second], of_columns);
            let nodes = vec![diff_src, diff_gamma, diff_beta];
            (nodes, vec![elements, channels, channels])
        }
        (Norm::Rms { .. }, Pass::Backward(_)) => {
            let diff_src = graph.rms_norm_grad_x(second, src, gamma, eps);
            let diff_gamma = graph.rms_norm_grad_w(second, src, gamma, eps);
            (vec![diff_src, diff_gamma], vec![elements, channels])
        }
        (Norm::Group { .. } | Norm::Instance { .. }, Pass::Backward(_)) => {
            let diff_src = graph
                .group_norm_grad_input(second, src, gamma, samples, planes, plane, groups, eps);
            // diff_gamma, and behind it diff_beta.
            let params = graph.group_norm_grad_weight_bias(second, src, planes, plane, groups, eps);
            (vec![diff_src, params], vec![elements, 2 * channels])
        }
        _ => return Err(format!("Meganeura has no {}", case.op()).into()),
    };
    graph.set_outputs(nodes);
    Ok((graph, outputs))
}

impl Contender for Sessions {
    fn peer(&self) -> Peer {
        Peer::Meganeura
    }

    fn name(&self) -> &'static str {
        "graph"
    }

    fn results(&self) -> Result<Vec<Vec<f32>>> {
        let mut session = self.sessions[0].borrow_mut();
        session.step();
        session.wait();
        let mut results = Vec::new();
        for (index, &elements) in self.outputs.iter().enumerate() {
            let mut result = vec![0.0; elements];
            session.read_output_by_index(index, &mut result);
            let rest = match index {
                0 => Vec::new(),
                _ => result.split_off(self.channels),
            };
            results.push(result);
            if !rest.is_empty() {
                results.push(rest);
            }
        }
        Ok(results)
    }

    fn time(&self, set: usize) -> Result<Duration> {
        let mut session = self.sessions[set].borrow_mut();
        let run = || {
            session.step();
            session.wait();
            Ok(())
        };
        clock(run, || Ok(()))
    }
}
