//! What the page's worker calls: a device, opened once, and the page's three parts on it. Results are JSON; NaN
//! becomes null.

pub mod digits;
pub mod speed;
pub mod verify;

use digits::{Settings, Training};
use serde_json::json;
use speed::Speed;
use verify::Verify;
use wasm_bindgen::prelude::*;
use wgpu_norm::{ContextOptions, DType, DeviceOptions, Error, GpuContext};

/// An error for JavaScript, whose name says whether the device or the adapter is to blame.
fn js(error: Error) -> JsValue {
    let name = match error {
        Error::NoAdapter { .. } => "NoAdapter",
        Error::DeviceLost { .. } => "DeviceLost",
        _ => "Error",
    };
    let error = js_sys::Error::new(&error.to_string());
    error.set_name(name);
    error.into()
}

fn not_begun() -> JsValue {
    JsError::new("this part has not begun").into()
}

/// The page's device and its parts.
#[wasm_bindgen]
pub struct Page {
    gpu: GpuContext,
    verify: Verify,
    speed: Option<Speed>,
    training: Option<Training>,
}

#[wasm_bindgen]
impl Page {
    /// Opens a device with all that the adapter has, or with WebGPU's default limits and no feature.
    pub async fn open(default_limits: bool) -> Result<Page, JsValue> {
        console_error_panic_hook::set_once();
        let gpu = context(default_limits).await?;
        Ok(Self {
            verify: Verify::new(&gpu, ""),
            speed: None,
            training: None,
            gpu,
        })
    }

    /// The adapter.
    pub fn about(&self) -> String {
        let info = self.gpu.adapter_info();
        let all = [DType::F32, DType::F16, DType::Bf16, DType::F64];
        let supported = all.into_iter().filter(|&dtype| self.gpu.supports(dtype));
        let profile = self.gpu.profile();
        json!({
            "adapter": info.name,
            "repository": of_workspace("repository"),
            "software": speed::is_software(&self.gpu),
            "types": supported.map(|dtype| dtype.to_string()).collect::<Vec<_>>(),
            "storage_buffers": profile.max_storage_buffers,
            "invocations": profile.max_invocations,
            "binding_bytes": profile.max_binding,
        })
        .to_string()
    }

    /// The number of cases of [`verify_case`](Self::verify_case) whose IDs contain one of these words, separated by
    /// commas; they begin anew.
    pub fn verify_begin(&mut self, words: &str) -> usize {
        self.verify = Verify::new(&self.gpu, words);
        self.verify.len()
    }

    /// Runs a case: its ID, its operator, its fault or why it cannot run here.
    pub async fn verify_case(&mut self, index: usize) -> Result<String, JsValue> {
        let found = self.verify.run(&self.gpu, index).await.map_err(js)?;
        Ok(found.to_string())
    }

    /// Prepares the measurements on the adapter of this name: how times are taken, and the cases.
    pub async fn speed_begin(&mut self, adapter: String) -> Result<String, JsValue> {
        let speed = Speed::new(&self.gpu).await.map_err(js)?.named(adapter);
        let cases = speed.cases().map(|case| {
            json!({
                "op": case.op_name(),
                "shape": case.shape_text(),
                "dtype": case.dtype.to_string(),
                "format": case.data_format.map(|format| format.to_string()),
            })
        });
        let begun = json!({ "timing": speed.timing(), "cases": cases.collect::<Vec<_>>() });
        self.speed = Some(speed);
        Ok(begun.to_string())
    }

    /// Measures a case: its row, or the reason why there is none.
    pub async fn speed_case(&mut self, index: usize) -> Result<String, JsValue> {
        let speed = self.speed.as_mut().ok_or_else(not_begun)?;
        match speed.measure(index).await {
            Ok(row) => Ok(json!({ "row": row }).to_string()),
            Err(error @ Error::DeviceLost { .. }) => Err(js(error)),
            Err(error) => Ok(json!({ "reason": error.to_string() }).to_string()),
        }
    }

    /// report.json, with the verdict of the cases that have run, if any. The date is in UTC, like 2025-01-31T12:00:00Z.
    pub fn report(&self, date: String) -> Result<String, JsValue> {
        let speed = self.speed.as_ref().ok_or_else(not_begun)?;
        Ok(speed.report(self.verify.verdict(), date))
    }

    /// Networks that have learnt nothing.
    pub fn digits_begin(&mut self, seed: u32, rate: f32, batch: usize) -> Result<(), JsValue> {
        let seed = seed.into();
        let training = Training::new(&self.gpu, Settings { seed, rate, batch });
        self.training = Some(training.map_err(js)?);
        Ok(())
    }

    /// Sets the learning rate of the next steps.
    pub fn digits_set_rate(&mut self, rate: f32) {
        if let Some(training) = &mut self.training {
            training.set_rate(rate);
        }
    }

    /// Both networks learn from a batch: the numbers of steps and epochs so far, and the losses.
    pub async fn digits_step(&mut self) -> Result<String, JsValue> {
        let training = self.training.as_mut().ok_or_else(not_begun)?;
        let step = training.step().await.map_err(js)?;
        Ok(json!({ "step": step.step, "epoch": step.epoch, "loss": step.loss }).to_string())
    }

    /// The percentage of the test images that each network recognizes.
    pub async fn digits_accuracy(&self) -> Result<String, JsValue> {
        let training = self.training.as_ref().ok_or_else(not_begun)?;
        let accuracy = training.accuracy().await.map_err(js)?;
        Ok(json!(accuracy).to_string())
    }

    /// The probability of each digit, as each network sees it, for 8 × 8 pixels.
    pub async fn digits_guess(&self, pixels: Vec<f32>) -> Result<String, JsValue> {
        let training = self.training.as_ref().ok_or_else(not_begun)?;
        let pixels = pixels
            .try_into()
            .map_err(|_| JsError::new("expected 64 pixels"))?;
        let guess = training.guess(&pixels).await.map_err(js)?;
        Ok(json!(guess).to_string())
    }
}

/// What the workspace of wgpu-norm says once of all its packages, if it does.
fn of_workspace(key: &str) -> Option<&'static str> {
    let mut lines = include_str!("../../Cargo.toml").lines();
    let value = |line: &'static str| line.strip_prefix(key)?.strip_prefix(" = ");
    Some(lines.find_map(value)?.trim_matches('"'))
}

async fn context(default_limits: bool) -> Result<GpuContext, JsValue> {
    let adapter = ContextOptions::default().adapter().await.map_err(js)?;
    if !default_limits {
        let opened = GpuContext::from_adapter(&adapter, DeviceOptions::default());
        return opened.await.map_err(js);
    }
    let opened = adapter.request_device(&wgpu::DeviceDescriptor::default());
    let (device, queue) = opened
        .await
        .map_err(|error| JsError::new(&error.to_string()))?;
    Ok(GpuContext::from_device(
        device,
        queue,
        DeviceOptions::default(),
    ))
}
