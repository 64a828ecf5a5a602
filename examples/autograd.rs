//! A framework's own autograd: any norm, with any residual and activation, is one node of its tape. The operation says
//! which tensors it reads and writes, and what its gradient is; the framework keeps the tensors by their roles.
//!
//! ```sh
//! cargo run --example autograd
//! ```

mod common;

use std::error::Error;
use std::process::ExitCode;
use wgpu_norm::{
    Activation, DType, DataFormat, Epilogue, Forward, GpuContext, Norm, Operation, Residual, Tensor,
};
use wgpu_norm_verify::Random;

fn main() -> ExitCode {
    common::main(autograd())
}

async fn autograd() -> Result<(), Box<dyn Error>> {
    let gpu = GpuContext::new().await?;
    println!("running on {}", gpu.adapter_info().name);
    let mut random = Random::new(1);
    let shape = [3, 8, 6];
    let [x, residual] = [(); 2].map(|()| random.vec(144, 1.0, 0.0));
    let [gamma, beta]: [Vec<f32>; 2] = [1.0, 0.0].map(|offset| random.vec(6, 0.25, offset));
    let [scale, shift]: [Vec<f32>; 2] = [1.0, 0.0].map(|offset| random.vec(8, 0.25, offset));
    let inputs = [x, residual, gamma, beta, scale, shift];

    // Layer norm of a sum, then group norm with SiLU.
    let before = Epilogue::new(Residual::Before, Activation::None);
    let rows = Operation::new(Norm::layer(-1), Forward::default(), &shape, DType::F32);
    let silu = Epilogue::new(Residual::None, Activation::Silu);
    let groups = Norm::group(2, DataFormat::Ncx);
    let groups = Operation::new(groups, Forward::default(), &shape, DType::F32);
    let layers = [rows.with_epilogue(before), groups.with_epilogue(silu)];

    let mut tape = Tape::new(&gpu, &inputs);
    let loss = tape.forward(&layers).await?;
    let grads = tape.backward().await?;
    println!("loss {loss:.4}");

    // Central differences of the loss agree with the gradient.
    for (input, name) in ["x", "residual", "gamma", "beta", "scale", "shift"]
        .into_iter()
        .enumerate()
    {
        let mut losses = [0.0; 2];
        for (loss, step) in losses.iter_mut().zip([-0.01, 0.01]) {
            let mut moved = inputs.clone();
            moved[input][3] += step;
            *loss = Tape::new(&gpu, &moved).forward(&layers).await?;
        }
        let (slope, diff) = ((losses[1] - losses[0]) / 0.02, grads[input][3]);
        println!("d loss / d {name}[3]: {diff:.4}, by differences {slope:.4}");
        if (slope - diff).abs() > 0.02 * (1.0 + diff.abs()) {
            return Err(format!("the gradient of {name} is wrong").into());
        }
    }
    Ok(())
}

/// A value of the tape, by its number.
type Var = usize;

/// An operation that has run, with the values that it read and wrote.
struct Node {
    operation: Operation,
    values: Vec<(Tensor, Var)>,
}

impl Node {
    fn find(&self, tensor: Tensor) -> Option<Var> {
        let mut values = self.values.iter();
        values.find_map(|&(own, value)| (own == tensor).then_some(value))
    }
}

struct Tape<'g> {
    gpu: &'g GpuContext,
    values: Vec<Vec<f32>>,
    nodes: Vec<Node>,
}

impl<'g> Tape<'g> {
    fn new(gpu: &'g GpuContext, inputs: &[Vec<f32>]) -> Self {
        Self {
            gpu,
            values: inputs.to_vec(),
            nodes: Vec::new(),
        }
    }

    /// Both layers, and half the sum of squares.
    async fn forward(&mut self, [rows, groups]: &[Operation; 2]) -> Result<f32, Box<dyn Error>> {
        let [x, residual, gamma, beta, scale, shift] = [0, 1, 2, 3, 4, 5];
        let params = |gamma, beta| [(Tensor::Gamma, gamma), (Tensor::Beta, beta)];
        let inputs = [(Tensor::Src, x), (Tensor::Residual, residual)];
        let hidden = self
            .apply(rows, &[&inputs[..], &params(gamma, beta)].concat())
            .await?;
        let inputs = [&[(Tensor::Src, hidden)], &params(scale, shift)[..]].concat();
        let dst = self.apply(groups, &inputs).await?;
        Ok(self.values[dst].iter().map(|y| y * y / 2.0).sum())
    }

    /// Runs an operation: all that it writes becomes values.
    async fn apply(
        &mut self,
        operation: &Operation,
        inputs: &[(Tensor, Var)],
    ) -> Result<Var, Box<dyn Error>> {
        let mut values = inputs.to_vec();
        for used in operation
            .tensors()?
            .iter()
            .filter(|used| used.access.writes())
        {
            values.push((used.tensor, self.values.len()));
            self.values.push(vec![0.0; used.elements() as usize]);
        }
        let (read, written) = self.values.split_at_mut(values[inputs.len()].1);
        let given = inputs
            .iter()
            .map(|&(tensor, value)| (tensor, bytemuck::cast_slice(&read[value])));
        let given: Vec<(Tensor, &[u8])> = given.collect();
        let results = values[inputs.len()..].iter().zip(written);
        let results =
            results.map(|(&(tensor, _), value)| (tensor, bytemuck::cast_slice_mut(value)));
        operation
            .run_into(self.gpu, &given, &mut results.collect::<Vec<_>>())
            .await?;
        let node = Node {
            operation: operation.clone(),
            values,
        };
        let dst = node.find(Tensor::Dst).ok_or("no dst")?;
        self.nodes.push(node);
        Ok(dst)
    }

    /// The gradients of all values. The loss's own is dst.
    async fn backward(&self) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
        let zeros = self.values.iter().map(|value| vec![0.0; value.len()]);
        let mut grads: Vec<Vec<f32>> = zeros.collect();
        let last = self.nodes.last().and_then(|node| node.find(Tensor::Dst));
        let last = last.ok_or("nothing has run")?;
        grads[last] = self.values[last].clone();
        for node in self.nodes.iter().rev() {
            let gradient = node.operation.gradient()?;
            let mut given: Vec<(Tensor, &[u8])> = Vec::new();
            let mut results = Vec::new();
            for used in gradient.tensors()? {
                // If a residual was added before the layer, the gradient's src is the sum.
                let role = match used.tensor {
                    Tensor::Src if node.find(Tensor::Sum).is_some() => Tensor::Sum,
                    Tensor::DiffDst => Tensor::Dst,
                    other => other,
                };
                if used.access.writes() {
                    results.push((used.tensor, vec![0.0_f32; used.elements() as usize]));
                } else {
                    let value = node.find(role).ok_or("a tensor is not on the tape")?;
                    let from = if used.tensor == Tensor::DiffDst {
                        &grads
                    } else {
                        &self.values
                    };
                    given.push((used.tensor, bytemuck::cast_slice(&from[value])));
                }
            }
            let mut slices: Vec<(Tensor, &mut [u8])> = Vec::new();
            for (tensor, result) in &mut results {
                slices.push((*tensor, bytemuck::cast_slice_mut(result)));
            }
            gradient.run_into(self.gpu, &given, &mut slices).await?;
            for (tensor, result) in results {
                // diff_src is the gradient of both summands.
                let of: &[Tensor] = match tensor {
                    Tensor::DiffSrc if node.find(Tensor::Sum).is_some() => {
                        &[Tensor::Src, Tensor::Residual]
                    }
                    Tensor::DiffSrc => &[Tensor::Src],
                    Tensor::DiffGamma => &[Tensor::Gamma],
                    Tensor::DiffBeta => &[Tensor::Beta],
                    Tensor::DiffResidual => &[Tensor::Residual],
                    _ => &[],
                };
                for value in of.iter().filter_map(|&tensor| node.find(tensor)) {
                    grads[value]
                        .iter_mut()
                        .zip(&result)
                        .for_each(|(sum, diff)| *sum += diff);
                }
            }
        }
        Ok(grads)
    }
}
