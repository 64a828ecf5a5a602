//! Compares the float64 reference with PyTorch, whose results `benches/peers/float64.py` writes:
//! `cargo run -p wgpu-norm-verify --example pytorch -- cases.json`
//!
//! For each operation, the largest difference of a tensor over its largest element. It fails above 1e-12.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use wgpu_norm::{Operation, Tensor};
use wgpu_norm_verify::Case;
use wgpu_norm_verify::reference::{Computed, compute};

const TOLERANCE: f64 = 1e-12;

type Tensors = BTreeMap<String, Vec<f64>>;

/// What an operation writes, with what it reads taken by name.
fn run(operation: &Operation, tensors: &Tensors) -> Result<Vec<Computed>, Box<dyn Error>> {
    let mut inputs = Vec::new();
    for used in operation.tensors()? {
        if let Some(values) = tensors
            .get(used.tensor.name())
            .filter(|_| used.access.reads())
        {
            inputs.push((used.tensor, &values[..]));
        }
    }
    Ok(compute(operation, &inputs)?)
}

/// Unlike f64::max it keeps a NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

/// The largest difference over the largest element.
fn difference(got: &[f64], want: &[f64]) -> f64 {
    let size = want
        .iter()
        .fold(f64::MIN_POSITIVE, |size, x| larger(size, x.abs()));
    let pairs = got.iter().zip(want);
    pairs.fold(0.0, |largest, (got, want)| {
        larger(largest, (got - want).abs())
    }) / size
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1);
    let path = path.ok_or("name the file that float64.py wrote")?;
    let cases: Vec<(String, Tensors, Tensors)> = serde_json::from_slice(&fs::read(path)?)?;
    let mut largest = 0.0;
    for (id, mut inputs, mut outputs) in cases {
        let forward = id.parse::<Case>()?.operation().clone();
        let mut results = run(&forward, &inputs)?;
        // The gradient reads what the forward pass wrote.
        for Computed { tensor, values, .. } in &results {
            let (tensor, values) = match tensor {
                Tensor::Sum => (Tensor::Src, values.clone()),
                // The reference gives the activation's arguments in place of bits.
                Tensor::Mask => {
                    let bits = values.iter().map(|&y| f64::from(u8::from(y > 0.0)));
                    (Tensor::Mask, bits.collect())
                }
                &other => (other, values.clone()),
            };
            inputs.insert(tensor.name().to_owned(), values);
        }
        results.extend(run(&forward.gradient()?, &inputs)?);
        // PyTorch has no mask, and no gradient of a gamma that is not there.
        results.retain(|computed| match computed.tensor {
            Tensor::Mask => false,
            Tensor::DiffGamma => forward.gamma,
            Tensor::DiffBeta => forward.beta,
            _ => true,
        });
        // A residual's own gradient is diff_src before the layer, and diff_dst after a layer without activation.
        let mut written = results.iter().map(|computed| computed.tensor);
        if !written.any(|tensor| tensor == Tensor::DiffResidual) {
            outputs.remove(Tensor::DiffResidual.name());
        }
        let mut worst = (0.0, "");
        for computed in &results {
            let name = computed.tensor.name();
            let want = outputs.remove(name).ok_or(format!("{id}: no {name}"))?;
            if want.len() != computed.values.len() {
                return Err(format!("{id}: {name} has {} elements", want.len()).into());
            }
            let difference = difference(&computed.values, &want);
            if difference.is_nan() || difference >= worst.0 {
                worst = (difference, name);
            }
        }
        if let Some(name) = outputs.keys().next() {
            return Err(format!("{id}: {name} was not computed").into());
        }
        println!("{:.1e} {:<13} {id}", worst.0, worst.1);
        largest = larger(largest, worst.0);
    }
    println!("the largest: {largest:.1e}");
    match largest <= TOLERANCE {
        true => Ok(()),
        false => Err(format!("above {TOLERANCE:.0e}").into()),
    }
}
