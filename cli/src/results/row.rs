//! The measurements of one case. Fields that are none are missing in files made from a printed table.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name of its set of shapes.
    pub set: String,
    pub op: String,
    /// N x C x spatial in either format.
    pub shape: String,
    pub dtype: String,
    pub data_format: Option<String>,
    pub statistics: String,
    pub param_grads: String,
    /// The activation after the layer. Files from versions without activations have no such field.
    #[serde(default = "no_activation")]
    pub activation: String,
    pub samples: Option<u64>,
    /// The number of runs between two timestamps; `time_ms` is the mean of a sample's.
    pub repeats: Option<u64>,
    pub time_ms: f64,
    pub wall_ms: f64,
    pub empty_submission_ms: Option<f64>,
    /// Wall time minus that of an empty submission.
    pub over_empty_ms: Option<f64>,
    /// The time to record: many in a row, and between submissions that are waited for, when the processor's caches hold
    /// other data.
    pub record_us: f64,
    pub record_between_us: Option<f64>,
    pub copy_gb_per_s: Option<f64>,
    pub copy_kernel: Option<String>,
    /// The best copy kernel without 64-bit words.
    pub portable_copy_gb_per_s: Option<f64>,
    pub copy_buffer_gb_per_s: Option<f64>,
    /// The models that apply, the plain one first.
    pub models: Vec<Model>,
    /// The model of what has to be moved.
    pub limit_times: Option<u64>,
    pub kernel: String,
    pub dispatches: u64,
    pub workspace_bytes: Option<u64>,
}

const NO_ACTIVATION: &str = "none";

fn no_activation() -> String {
    NO_ACTIVATION.to_owned()
}

/// A model of the traffic: every element is moved this many times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub times: u64,
    pub bytes: u64,
    pub fraction_of_copy: Option<f64>,
}

impl Model {
    /// The models that tables have columns for.
    pub const ALL: [u64; 3] = [5, 3, 2];
}

impl Row {
    pub fn model(&self, times: u64) -> Option<&Model> {
        self.models.iter().find(|model| model.times == times)
    }

    /// The bytes of the plain model.
    pub fn bytes(&self) -> u64 {
        self.models.iter().map(|m| m.bytes).max().unwrap_or(0)
    }

    /// The fraction of the copy bandwidth under the plain model.
    pub fn fraction(&self) -> Option<f64> {
        self.models.first().and_then(|model| model.fraction_of_copy)
    }

    /// The fraction under the plain model at the speed of a copy if every tensor is read once; none if the plain model
    /// counts none twice.
    pub fn fraction_of_one_reading(&self) -> Option<f64> {
        match self.models.as_slice() {
            [plain, .., once] => Some(plain.times as f64 / once.times as f64),
            _ => None,
        }
    }

    /// The fraction of the copy bandwidth under a model.
    pub fn fraction_at(&self, times: u64) -> Option<f64> {
        self.model(times)?.fraction_of_copy
    }

    /// The same under the model of what has to be moved.
    pub fn fraction_of_limit(&self) -> Option<f64> {
        self.fraction_at(self.limit_times?)
    }

    /// The fraction of the copy bandwidth under the plain model if the case took `ms`.
    pub fn fraction_in(&self, ms: f64) -> Option<f64> {
        self.fraction().map(|fraction| fraction * self.time_ms / ms)
    }

    /// Whether latency counts for it.
    pub fn is_small(&self) -> bool {
        self.set == "small"
    }

    /// The attributes that differ from the usual: batch statistics, both parameter gradients, no activation.
    pub fn variant(&self) -> String {
        let mut words = Vec::new();
        if self.statistics != "batch" {
            words.push(self.statistics.as_str());
        }
        if self.param_grads != "both" {
            words.push(self.param_grads.as_str());
        }
        if self.activation != NO_ACTIVATION {
            words.push(self.activation.as_str());
        }
        words.join(" ")
    }

    pub fn format(&self) -> &str {
        self.data_format.as_deref().unwrap_or("-")
    }

    /// The shape as people write it.
    pub fn times_shape(&self) -> String {
        self.shape.replace('x', "×")
    }
}

#[cfg(test)]
impl Row {
    /// A row whose numbers have as many digits as measured ones.
    pub fn example(number: f64) -> Self {
        let model = |times| Model {
            times,
            bytes: times * 32768,
            fraction_of_copy: Some(number / times as f64),
        };
        Self {
            set: "software".to_owned(),
            op: "batch-norm".to_owned(),
            shape: "4x8x16x16".to_owned(),
            dtype: "f32".to_owned(),
            data_format: Some("NCX".to_owned()),
            statistics: "batch".to_owned(),
            param_grads: "both".to_owned(),
            activation: no_activation(),
            samples: Some(7),
            repeats: Some(1),
            time_ms: number,
            wall_ms: 2.0 * number,
            empty_submission_ms: Some(number / 3.0),
            over_empty_ms: Some(2.0 * number - number / 3.0),
            record_us: number / 7.0,
            record_between_us: Some(number / 11.0),
            copy_gb_per_s: Some(number / 13.0),
            copy_kernel: Some("vec4".to_owned()),
            portable_copy_gb_per_s: Some(number / 17.0),
            copy_buffer_gb_per_s: Some(number / 19.0),
            models: vec![model(5), model(3)],
            limit_times: Some(3),
            kernel: "channels_first_fused".to_owned(),
            dispatches: 1,
            workspace_bytes: Some(768),
        }
    }
}
