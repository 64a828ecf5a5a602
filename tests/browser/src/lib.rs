//! The library's list of cases in a browser, compared with the float64 reference, which is compiled into the same page.

mod errors;

use std::collections::BTreeMap;
use wasm_bindgen::prelude::wasm_bindgen;
use wgpu_norm_verify::{Outcome, cases};
use wgpu_norm::{Algorithm, GpuContext};

/// Runs all cases. Reports a line for each algorithm and each failure, then `passed` or `failed`.
#[wasm_bindgen]
pub async fn run() -> String {
    console_error_panic_hook::set_once();
    let gpu = match GpuContext::new().await {
        Ok(gpu) => gpu,
        Err(error) => return format!("no context: {error}\nfailed"),
    };
    let profile = gpu.profile();
    let mut lines = vec![format!(
        "adapter {:?}, {:?}, {} storage buffers, profile {}",
        profile.adapter,
        gpu.device().adapter_info().backend,
        profile.max_storage_buffers,
        profile.tuning
    )];
    let mut passed = true;
    let mut ran: BTreeMap<Algorithm, (usize, f64)> = BTreeMap::new();
    let mut unsupported: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases(false) {
        let fault = match case.run(&gpu).await {
            Ok(Outcome::Ran {
                algorithm,
                error,
                fault,
            }) => {
                let (cases, largest) = ran.entry(algorithm).or_default();
                *cases += 1;
                *largest = largest.max(error);
                fault
            }
            Ok(Outcome::Unsupported { reason }) => {
                *unsupported.entry(reason).or_default() += 1;
                None
            }
            Ok(other) => Some(format!("{other:?}")),
            Err(error) => Some(error.to_string()),
        };
        if let Some(fault) = fault {
            passed = false;
            lines.push(format!("{case}: {fault}"));
        }
    }
    for (algorithm, (cases, largest)) in &ran {
        lines.push(format!(
            "{algorithm}: {cases} cases, largest error {largest:.3} of the tolerance"
        ));
    }
    for (reason, cases) in &unsupported {
        lines.push(format!("not supported: {cases} cases: {reason}"));
    }
    let missing: Vec<_> = Algorithm::ALL
        .iter()
        .filter(|algorithm| !ran.contains_key(algorithm))
        .collect();
    lines.push(format!("algorithms that no case ran: {missing:?}"));
    passed &= missing.is_empty();
    // These come last, as they lose the device.
    for (ok, line) in errors::all(&gpu).await {
        passed &= ok;
        lines.push(line);
    }
    lines.push(if passed { "passed" } else { "failed" }.to_owned());
    lines.join("\n")
}
