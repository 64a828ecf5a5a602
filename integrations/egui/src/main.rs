//! A window that shows how a batch norm trains, on the device and the queue that draw the window.
//!
//! ```sh
//! cargo run
//! cargo run -- --headless out.png # without a window: the last frame becomes a picture
//! ```

mod training;

use eframe::egui::{self, Align2, Color32, FontId, Grid, Pos2, Rect, Ui, UiBuilder};
use eframe::egui_wgpu::{RenderState, WgpuConfiguration, WgpuSetup};
use eframe::emath::RectTransform;
use egui_kittest::{Harness, wgpu as headless};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use training::{Outcome, Progress, STEPS, train};
use wgpu_norm::{DeviceOptions, GpuContext, wgpu};

const SIZE: [f32; 2] = [704.0, 416.0];

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [] => {}
        [flag, path] if flag == "--headless" => return picture(path),
        _ => return Err("usage: wgpu-norm-egui [--headless out.png]".into()),
    }
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default().with_inner_size(SIZE),
        wgpu_options: configuration(),
        ..Default::default()
    };
    let create: eframe::AppCreator = Box::new(|creation| {
        let state = creation.wgpu_render_state.as_ref();
        Ok(Box::new(App::on(state.ok_or("no wgpu")?)))
    });
    Ok(eframe::run_native("wgpu-norm in egui", options, create)?)
}

/// Computes frames without a window until the training ends, and draws the last.
fn picture(path: &str) -> Outcome {
    let setup = configuration().wgpu_setup;
    let state = headless::create_render_state(setup, Default::default());
    let app = App::on(&state);
    let frame = |ui: &mut Ui, app: &mut App| {
        let all = UiBuilder::new().max_rect(ui.content_rect()); // also the harness's margin
        ui.scope_builder(all, |ui| app.frame(ui));
    };
    let mut harness = Harness::builder()
        .with_size(SIZE)
        .with_pixels_per_point(2.0)
        .renderer(headless::WgpuTestRenderer::from_render_state(state))
        .build_ui_state(frame, app);
    while harness.state().training.is_some() {
        harness.step();
    }
    harness.render()?.save(path)?;
    let app = harness.state();
    let losses = &app.progress.borrow().losses;
    match losses.last() < losses.first() {
        true => Ok(()),
        false => Err(format!("the loss did not go down. {}", app.error).into()),
    }
}

/// egui's own configuration, but the device has what makes the kernels fast.
fn configuration() -> WgpuConfiguration {
    let mut configuration = WgpuConfiguration::default();
    if let WgpuSetup::CreateNew(setup) = &mut configuration.wgpu_setup {
        setup.device_descriptor = Arc::new(|adapter| wgpu::DeviceDescriptor {
            required_features: adapter.features() & GpuContext::USEFUL_FEATURES,
            required_limits: adapter.limits(),
            ..Default::default()
        });
    }
    configuration
}

struct App {
    gpu: GpuContext,
    progress: Rc<RefCell<Progress>>,
    /// None after the end.
    training: Option<Pin<Box<dyn Future<Output = Outcome>>>>,
    error: String,
}

impl App {
    /// The application, computing on the device and the queue of egui.
    fn on(state: &RenderState) -> Self {
        let (device, queue) = (state.device.clone(), state.queue.clone());
        let options = DeviceOptions::default();
        Self::new(GpuContext::from_device(device, queue, options))
    }

    fn new(gpu: GpuContext) -> Self {
        let progress = Rc::<RefCell<Progress>>::default();
        Self {
            training: Some(Box::pin(train(gpu.clone(), progress.clone()))),
            gpu,
            progress,
            error: String::new(),
        }
    }

    /// A frame: submits a training step if the last one's results are there. It never waits for them, but asks for
    /// another frame.
    fn frame(&mut self, ui: &mut Ui) {
        if let Some(training) = &mut self.training {
            ui.request_repaint();
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(end) = training.as_mut().poll(&mut context) {
                self.training = None;
                self.error = end.map_or_else(|error| error.to_string(), |()| String::new());
            }
        }
        let progress = self.progress.clone();
        let Progress { losses, params } = &*progress.borrow();
        let frame = egui::Frame::central_panel(ui.style()).inner_margin(16);
        egui::Panel::top("numbers").frame(frame).show(ui, |ui| {
            ui.heading("A batch norm trains on the device that draws this");
            ui.label(self.gpu.adapter_info().name);
            ui.add_space(8.0);
            ui.horizontal(|ui| {
                if ui.button("Restart").clicked() {
                    *self = Self::new(self.gpu.clone());
                }
                ui.label(format!("step {} of {STEPS}", losses.len()));
                ui.strong(format!("loss {:.4}", losses.last().unwrap_or(&f32::NAN)));
                ui.colored_label(ui.visuals().error_fg_color, &self.error);
            });
        });
        let right = egui::Panel::right("parameters").frame(frame);
        let grid = Grid::new("parameters").striped(true).min_col_width(64.0);
        let table = |ui: &mut Ui| {
            ui.strong("gamma");
            ui.strong("beta");
            for (gamma, beta) in params[0].iter().zip(params[1]) {
                ui.end_row();
                ui.monospace(format!("{gamma:6.3}"));
                ui.monospace(format!("{beta:6.3}"));
            }
        };
        right.show(ui, |ui| grid.show(ui, table));
        let rest = egui::CentralPanel::default().frame(frame);
        rest.show(ui, |ui| plot(ui, losses));
    }
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut Ui, _: &mut eframe::Frame) {
        self.frame(ui);
    }
}

/// Draws the losses, in coordinates of step and loss.
fn plot(ui: &mut Ui, losses: &[f32]) {
    ui.strong("loss, by step");
    let area = ui.available_rect_before_wrap().shrink2([24.0, 16.0].into());
    let max = losses.iter().copied().fold(1.0, f32::max);
    let tick = Pos2::new(STEPS as f32 / 4.0, (max / 4.0).ceil());
    let corners = [[0.0, tick.y * 4.0], [tick.x * 4.0, 0.0]].map(Pos2::from);
    let to_screen = RectTransform::from_to(Rect::from_min_max(corners[0], corners[1]), area);

    let (painter, color) = (ui.painter(), ui.visuals().text_color());
    let label = |at, align, value: f32| painter.text(at, align, value, FontId::default(), color);
    for i in 0..=4 {
        let value = tick * i as f32;
        let at = to_screen * value;
        painter.hline(area.x_range(), at.y, ui.visuals().window_stroke);
        let left = Pos2::new(area.min.x - 8.0, at.y);
        let below = Pos2::new(at.x, area.max.y + 6.0);
        label(left, Align2::RIGHT_CENTER, value.y);
        label(below, Align2::CENTER_TOP, value.x);
    }
    let points = losses.iter().enumerate();
    let points = points.map(|(step, &loss)| to_screen * Pos2::new(step as f32, loss));
    painter.line(points.collect(), (2.0, Color32::from_rgb(90, 170, 255)));
}
