//! Every kernel in a browser: gradients from host slices, held against the float64 reference that is
//! compiled into the same page.

mod cases;
mod data;

use std::collections::BTreeSet;
use wasm_bindgen::prelude::wasm_bindgen;
use wgpu_norm::{DeviceOptions, GpuContext, Tuning};

/// Runs all cases with the adapter's own sizes and with others that choose other kernels. A line for each
/// choice of sizes, then `passed` or `failed`.
#[wasm_bindgen]
pub async fn run() -> String {
    console_error_panic_hook::set_once();
    let own = match GpuContext::new().await {
        Ok(gpu) => gpu,
        Err(error) => return format!("no context: {error}\nfailed"),
    };
    let profile = own.profile().clone();
    let mut lines = vec![format!(
        "adapter {:?}, {:?}, {} storage buffers, profile {}",
        profile.adapter,
        own.device().adapter_info().backend,
        profile.max_storage_buffers,
        profile.tuning
    )];
    let mut passed = true;
    let mut kernels = BTreeSet::new();
    for (name, tuning) in tunings(profile.tuning) {
        let mut profile = profile.clone();
        profile.tuning = tuning;
        let options = DeviceOptions {
            profile: Some(profile),
            ..DeviceOptions::default()
        };
        let gpu = GpuContext::from_device(own.device().clone(), own.queue().clone(), options);
        let outcome = cases::all(&gpu).await;
        lines.push(format!(
            "{name}: {} cases by {}, largest error {:.3} of the tolerance",
            outcome.cases,
            outcome
                .kernels
                .iter()
                .copied()
                .collect::<Vec<_>>()
                .join(" "),
            outcome.largest_error
        ));
        passed &= outcome.failures.is_empty() && outcome.cases > 0;
        lines.extend(outcome.failures);
        kernels.extend(outcome.kernels);
    }
    let missing: Vec<_> = cases::KERNELS
        .iter()
        .filter(|kernel| !kernels.contains(**kernel))
        .collect();
    lines.push(format!("kernels that no case ran: {missing:?}"));
    passed &= missing.is_empty();
    // At the end: the device does not come back.
    for (ok, line) in cases::errors(&own).await {
        passed &= ok;
        lines.push(line);
    }
    lines.push(if passed { "passed" } else { "failed" }.to_owned());
    lines.join("\n")
}

fn tunings(own: Tuning) -> Vec<(&'static str, Tuning)> {
    let runs = |tuning| Tuning {
        short_run: 1,
        fused_block: 0,
        fused_turn: 0,
        fused_columns: 0,
        ..tuning
    };
    let columns = |tuning| Tuning {
        short_run: u32::MAX,
        fused_block: 0,
        fused_turn: 0,
        fused_columns: 0,
        ..tuning
    };
    let splits = |tuning| Tuning {
        min_split: 64,
        apply_tile: 64,
        row_quads: 1,
        ..tuning
    };
    vec![
        ("own sizes", own),
        ("gpu sizes", Tuning::GPU),
        ("runs", runs(splits(Tuning::GPU))),
        ("columns", columns(splits(Tuning::SOFTWARE))),
    ]
}
