//! Random operations, as IDs of cases.

use wgpu_norm::{Activation, Algorithm, Tuning};
use wgpu_norm_verify::Random;

pub struct Draw(pub Random);

/// A layer without its shape.
struct Layer {
    name: &'static str,
    rank: usize,
    format: &'static str,
    kind: Kind,
}

enum Kind {
    Channels,
    /// Parameters along these axes.
    Broadcast(Vec<usize>),
    /// Statistics over the axes from this one on.
    From(usize),
    Groups(usize),
    /// Statistics over axes, parameters along axes.
    Axes(Vec<usize>, Vec<usize>),
}

impl Draw {
    pub fn below(&mut self, count: u64) -> u64 {
        self.0.bits() % count
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A size at or near a boundary of vec4s, rows, workgroups and tiles, or any.
    fn size(&mut self, most: u64) -> u64 {
        let near = match self.below(5) {
            0 => self.of(&[1, 1, 2, 3, 4, 5, 6, 7, 8]),
            1 => 1 << self.below(14),
            2 if self.one_in(3) => 1 << self.below(18),
            2 | 3 => (1 << self.below(14)) + self.of(&[1, 2, 3, 4]),
            _ => {
                let bits = self.below(14);
                1 + self.below(1 << bits)
            }
        };
        near.saturating_sub(self.of(&[0, 0, 0, 1]))
            .clamp(1, most.max(1))
    }

    /// A shape of this rank with at most so many elements; rarely an empty one.
    fn shape(&mut self, rank: usize, most: u64) -> Vec<usize> {
        let mut shape = vec![1; rank];
        let mut rest = most;
        // Any axis may be the long one.
        let first = self.below(rank as u64) as usize;
        for step in 0..rank {
            let axis = (first + step) % rank;
            let size = self.size(rest);
            shape[axis] = size as usize;
            rest /= size;
        }
        if self.one_in(200) {
            let axis = self.below(rank as u64) as usize;
            shape[axis] = 0;
        }
        shape
    }

    /// A set of axes, in order.
    fn axes(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.one_in(2)).collect()
    }

    /// So many operations that differ in their shapes, and how all are computed. Most of the time is that of compiling
    /// kernels, which shapes often share.
    pub fn cases(&mut self, most: u64, count: u64) -> Vec<String> {
        let layer = self.layer();
        let passes: &[&str] = match layer.name {
            "layer_norm" | "rms_norm" => &["backward", "forward"],
            _ => &["backward", "forward", "inference"],
        };
        let pass = self.of(passes);
        let mut rest = Vec::new();
        self.options(layer.name, pass, &mut rest);
        self.way(layer.name, pass, &mut rest);
        let cases = (0..count).map(|_| {
            let bits = 6 + self.below(u64::from(most.ilog2()) - 5);
            let (shape, norm) = self.place(&layer, 1 << bits);
            let mut parts = vec![format!("{}_{pass}", layer.name), show(&shape, "x")];
            parts.extend(norm.into_iter().chain(rest.clone()));
            if self.one_in(6) {
                let elements: usize = shape.iter().product();
                let share = 4 * elements as u64 / (1 + self.below(6));
                parts.push(format!(
                    "max_binding={}",
                    share.max(1 << 12).next_multiple_of(256)
                ));
            }
            parts.retain(|part| !part.is_empty());
            parts.join("/")
        });
        cases.collect()
    }

    /// One of them.
    pub fn case(&mut self, most: u64) -> String {
        self.cases(most, 1).swap_remove(0)
    }

    fn layer(&mut self) -> Layer {
        let rank = self.of(&[1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, 7, 8]);
        let (name, rank, kind) = match self.below(9) {
            0 | 1 => ("batch_norm", rank.max(2), Kind::Channels),
            2 => ("batch_norm", rank, Kind::Broadcast(self.axes(rank))),
            3 => {
                let name = self.of(&["layer_norm", "rms_norm"]);
                (name, rank, Kind::From(self.below(rank as u64) as usize))
            }
            4 => {
                let groups = self.of(&[1, 2, 3, 4, 8, 16, 32]);
                ("group_norm", rank.max(2), Kind::Groups(groups))
            }
            5 => ("instance_norm", rank.max(3), Kind::Channels),
            // Over columns: axes that others follow. Samples may have parameters of their own.
            6 => {
                let rank = rank.max(3);
                let first = 1 + self.below(rank as u64 - 2) as usize;
                let end = first + 1 + self.below((rank - 1 - first) as u64) as usize;
                let over: Vec<_> = (first..end).collect();
                let sample = self.one_in(3).then_some(0);
                let along = sample.into_iter().chain(over.clone()).collect();
                ("axes_norm", rank, Kind::Axes(over, along))
            }
            // Adaptive: the last axis, parameters of each sample.
            7 => {
                let along = self.of(&[&[0, 2][..], &[0, 1, 2], &[1, 2]]).to_vec();
                ("axes_norm", 3, Kind::Axes(vec![2], along))
            }
            _ => {
                let mut over = self.axes(rank);
                if over.is_empty() {
                    over.push(rank - 1);
                }
                ("axes_norm", rank, Kind::Axes(over, self.axes(rank)))
            }
        };
        let format = self.of(&["ncx", "nxc"]);
        Layer {
            name,
            rank,
            format,
            kind,
        }
    }

    /// A shape for a layer, and the parts of its ID.
    fn place(&mut self, layer: &Layer, most: u64) -> (Vec<usize>, Vec<String>) {
        let format = layer.format.to_owned();
        let mut shape = self.shape(layer.rank, most);
        let parts = match &layer.kind {
            Kind::Channels => vec![format],
            Kind::Broadcast(axes) => {
                let params = shape.iter().enumerate();
                let params =
                    params.map(|(axis, &size)| if axes.contains(&axis) { size } else { 1 });
                vec![format!("params_{}", show(&params.collect::<Vec<_>>(), "x"))]
            }
            Kind::From(axis) if axis + 1 == layer.rank => vec![],
            Kind::From(axis) => vec![format!("axis_{axis}")],
            Kind::Groups(groups) => {
                let axis = if layer.format == "ncx" {
                    1
                } else {
                    layer.rank - 1
                };
                shape[axis] = shape[axis].div_ceil(2 * groups).max(1) * groups;
                vec![format, format!("groups_{groups}")]
            }
            Kind::Axes(over, along) if along.is_empty() => {
                vec![format!("over_{}", show(over, "-")), "along_none".to_owned()]
            }
            Kind::Axes(over, along) => {
                vec![
                    format!("over_{}", show(over, "-")),
                    format!("along_{}", show(along, "-")),
                ]
            }
        };
        (shape, parts)
    }

    fn options(&mut self, name: &str, pass: &str, parts: &mut Vec<String>) {
        let types = [
            "f32",
            "f32",
            "f32",
            "f16",
            "f16-f32",
            "f16-f16-f32",
            "bf16",
            "bf16-f32",
            "bf16-bf16-f32",
            "f64",
        ];
        let types = self.of(&types);
        let mut add = |draw: &mut Self, times, there: bool, part: &str| {
            if there && draw.one_in(times) {
                parts.push(part.to_owned());
            }
        };
        let (batch, rows) = (
            name == "batch_norm",
            matches!(name, "layer_norm" | "rms_norm"),
        );
        let (backward, forward) = (pass == "backward", pass == "forward");
        add(self, 5, true, "no_gamma");
        add(self, 5, name != "rms_norm", "no_beta");
        add(self, 10, true, "zero_centered_gamma");
        add(self, 3, batch && backward, "constant");
        add(self, 6, backward, "frozen");
        add(self, 4, batch && forward, "running");
        add(self, 6, batch && forward, "running_unbiased=0.1");
        add(self, 4, rows && forward, "no_statistics");
        add(self, 3, name == "axes_norm", "uncentered");
        let gate = name == "axes_norm" && self.one_in(4);
        let activation = !gate && self.one_in(3);
        let activations: Vec<_> = Activation::NAMES
            .iter()
            .skip(1)
            .map(|(name, _)| *name)
            .collect();
        let activation = if activation {
            self.of(&activations)
        } else {
            ""
        };
        let smooth = !matches!(activation, "" | "relu");
        let takes_residual = if rows { !backward } else { !smooth };
        let residual = takes_residual && self.one_in(4);
        // A gradient has a residual only with the mask of an activation.
        let residual = residual && (!backward || activation == "relu");
        if gate {
            parts.push("gate".to_owned());
        }
        parts.push(activation.to_owned());
        if residual {
            parts.push("residual".to_owned());
        }
        parts.push(
            if smooth && types == "f64" {
                "f32"
            } else {
                types
            }
            .to_owned(),
        );
    }

    fn way(&mut self, name: &str, pass: &str, parts: &mut Vec<String>) {
        let values = [
            "tiny_variance",
            "large_mean",
            "wide",
            "equal",
            "alternating",
        ];
        if self.one_in(15) {
            parts.push(self.of(&values).to_owned());
        }
        if self.one_in(4) {
            parts.push(self.of(&Algorithm::ALL).name().to_owned());
        }
        parts.push(
            self.of(&["", "", "", "gpu", "gpu", "software", "tiny", "tiny"])
                .to_owned(),
        );
        if self.one_in(4) {
            let changes: Vec<_> = (0..1 + self.below(3)).map(|_| self.change()).collect();
            parts.push(changes.join(","));
        }
        let limits = [
            "max_workgroups=7",
            "max_workgroups=255",
            "max_storage_buffers=4",
            "max_storage_buffers=5",
            "max_storage_buffers=6",
            "max_storage_buffers=7",
            "max_storage_buffers=8",
            "max_workgroup_storage=2048",
            "f16_encoder=1",
            "f16_encoder=2",
            "max_invocations=64",
            "subgroup_size=0",
            "long_words=0",
            "alignment=256",
            "alignment=1024",
            "window_unit=256",
            "window_unit=4096",
        ];
        if self.one_in(6) {
            parts.push(self.of(&limits).to_owned());
        }
        let mut add = |draw: &mut Self, times, there: bool, part: &str| {
            if there && draw.one_in(times) {
                parts.push(part.to_owned());
            }
        };
        add(self, 4, true, "exact");
        add(self, 5, true, "pooled");
        add(self, 8, true, "offset=0");
        add(self, 8, true, "offset=3");
        add(self, 3, pass == "backward", "in_place");
        add(
            self,
            8,
            name == "batch_norm" && pass != "inference",
            "halves",
        );
        add(
            self,
            8,
            name == "batch_norm" && pass != "inference",
            "two_shards",
        );
        add(self, 25, true, "repeats");
        add(self, 40, true, "checked");
        add(self, 60, true, "nan");
        add(self, 80, true, "infinite");
    }

    /// A size of the tuning, changed within its bounds.
    fn change(&mut self) -> String {
        let fields = Tuning::GPU.to_string();
        let fields: Vec<_> = fields
            .split([',', '\n'])
            .filter(|field| field.contains('='))
            .collect();
        let (name, _) = self.of(&fields).trim().split_once('=').unwrap();
        loop {
            let value = match self.below(3) {
                0 => 1 << self.below(12),
                1 => self.below(20),
                _ => {
                    let bits = self.below(21);
                    self.below(1 << bits)
                }
            };
            let change = format!("{name}={value}");
            if Tuning::GPU.overridden(&change).is_ok() {
                return change;
            }
        }
    }
}

fn show(numbers: &[usize], between: &str) -> String {
    let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
    numbers.join(between)
}
