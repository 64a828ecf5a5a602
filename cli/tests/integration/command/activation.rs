//! An activation and a residual after batch, group and instance norm, in both directions.

use super::*;

const EPSILON: f64 = 0.5;

/// The number of elements of every src here.
const ELEMENTS: usize = 24;

/// A layer over 24 elements, NCX: the statistics and the gamma of each element.
struct Layer {
    name: &'static str,
    shape: &'static [usize],
    /// The shape of statistics, and the number of channels.
    statistics: &'static [usize],
    channels: usize,
    group: fn(usize) -> usize,
    channel: fn(usize) -> usize,
}

const BATCH: Layer = Layer {
    name: "batch-norm",
    shape: &[4, 3, 2],
    statistics: &[3],
    channels: 3,
    group: |i| i / 2 % 3,
    channel: |i| i / 2 % 3,
};

/// Two groups of two channels.
const GROUP: Layer = Layer {
    name: "group-norm",
    shape: &[2, 4, 3],
    statistics: &[2, 2],
    channels: 4,
    group: |i| i / 6,
    channel: |i| i / 3 % 4,
};

const INSTANCE: Layer = Layer {
    name: "instance-norm",
    shape: &[2, 2, 6],
    statistics: &[2, 2],
    channels: 2,
    group: |i| i / 6,
    channel: |i| i / 6 % 2,
};

const LAYERS: [Layer; 3] = [BATCH, GROUP, INSTANCE];

// ---- numbers that every element type holds exactly

fn src(i: usize) -> f64 {
    (i * 7 % 11) as f64 / 4.0 - 1.0
}

fn diff_dst(i: usize) -> f64 {
    (i * 5 % 13) as f64 / 8.0 - 0.5
}

fn residual(i: usize) -> f64 {
    (i * 3 % 7) as f64 / 4.0 - 0.875
}

fn gamma(c: usize) -> f64 {
    1.5 - c as f64
}

fn beta(c: usize) -> f64 {
    0.375 - c as f64 / 4.0
}

fn no_residual(_: usize) -> f64 {
    0.0
}

fn all<R>(of: impl Fn(usize) -> R) -> Vec<R> {
    (0..ELEMENTS).map(of).collect()
}

// ---- the expected values, computed by hand

fn relu(y: f64) -> f64 {
    y.max(0.0)
}

fn silu(y: f64) -> f64 {
    y / (1.0 + (-y).exp())
}

/// A slope, from a difference.
fn slope(activation: fn(f64) -> f64, y: f64) -> f64 {
    let step = 1e-5;
    (activation(y + step) - activation(y - step)) / (2.0 * step)
}

impl Layer {
    fn operator(&self, pass: &str) -> String {
        format!("{}-{pass}", self.name)
    }

    fn group_means(&self, of: impl Fn(usize) -> f64) -> Vec<f64> {
        let groups = self.statistics.iter().product::<usize>();
        let mut sums = vec![(0.0, 0.0); groups];
        for i in 0..ELEMENTS {
            let (sum, count) = &mut sums[(self.group)(i)];
            *sum += of(i);
            *count += 1.0;
        }
        sums.into_iter().map(|(sum, count)| sum / count).collect()
    }

    fn mean(&self) -> Vec<f64> {
        self.group_means(src)
    }

    fn variance(&self) -> Vec<f64> {
        let mean = self.mean();
        self.group_means(|i| (src(i) - mean[(self.group)(i)]).powi(2))
    }

    fn r(&self) -> Vec<f64> {
        let variance = self.variance();
        all(|i| 1.0 / (variance[(self.group)(i)] + EPSILON).sqrt())
    }

    fn x_hat(&self) -> Vec<f64> {
        let (mean, r) = (self.mean(), self.r());
        all(|i| (src(i) - mean[(self.group)(i)]) * r[i])
    }

    /// The activation's argument.
    fn before(&self, residual: fn(usize) -> f64) -> Vec<f64> {
        let x_hat = self.x_hat();
        let y = all(|i| {
            let c = (self.channel)(i);
            gamma(c) * x_hat[i] + beta(c) + residual(i)
        });
        assert!(y.iter().all(|y| y.abs() > 1e-3), "{y:?}");
        y
    }

    fn dst(&self, residual: fn(usize) -> f64, activation: fn(f64) -> f64) -> Vec<f64> {
        self.before(residual).into_iter().map(activation).collect()
    }

    /// diff_src, diff_gamma and diff_beta of the layer alone.
    fn gradients(&self, d: &[f64]) -> [Vec<f64>; 3] {
        let (r, x_hat) = (self.r(), self.x_hat());
        let scaled = |i: usize| gamma((self.channel)(i)) * d[i];
        let means = self.group_means(scaled);
        let products = self.group_means(|i| scaled(i) * x_hat[i]);
        let diff_src = all(|i| {
            let group = (self.group)(i);
            r[i] * (scaled(i) - means[group] - x_hat[i] * products[group])
        });
        let sums = |of: &dyn Fn(usize) -> f64| {
            let mut sums = vec![0.0; self.channels];
            (0..ELEMENTS).for_each(|i| sums[(self.channel)(i)] += of(i));
            sums
        };
        [diff_src, sums(&|i| d[i] * x_hat[i]), sums(&|i| d[i])]
    }

    // ---- files

    fn tensor<T: Element>(&self, of: fn(usize) -> f64) -> Tensor {
        filled::<T>(self.shape, &all(of))
    }

    fn param<P: Element>(&self, of: fn(usize) -> f64) -> Tensor {
        let values: Vec<f64> = (0..self.channels).map(of).collect();
        filled::<P>(&[self.channels], &values)
    }

    fn draft<T: Element, P: Element>(&self) -> Draft {
        let tensors = HashMap::from([
            ("src", self.tensor::<T>(src)),
            ("gamma", self.param::<P>(gamma)),
            ("beta", self.param::<P>(beta)),
        ]);
        let metadata = HashMap::new();
        let draft = Draft { tensors, metadata };
        draft
            .attribute("epsilon", "0.5")
            .attribute("data_format", "NCX")
            .attribute("groups", "2")
    }

    fn forward(&self) -> Draft {
        self.draft::<f32, f32>()
    }

    fn backward(&self) -> Draft {
        self.forward()
            .with("diff_dst", self.tensor::<f32>(diff_dst))
            .with("mean", filled::<f32>(self.statistics, &self.mean()))
            .with("variance", filled::<f32>(self.statistics, &self.variance()))
    }

    /// Runs a pass; returns the file that it wrote and its output.
    fn run(&self, pass: &str, name: &str, draft: &Draft, arguments: &[&str]) -> (PathBuf, String) {
        let folder = folder(&format!("{}-{pass}-{name}", self.name));
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, draft.bytes()).unwrap();
        let arguments = [&["--check"], arguments].concat();
        let result = operate(&self.operator(pass), &input, &output, &arguments);
        assert_success(&result);
        (output, stdout(&result))
    }
}

fn filled<T: Element>(shape: &[usize], values: &[f64]) -> Tensor {
    let values: Vec<T> = values.iter().map(|&value| T::from_f64(value)).collect();
    tensor(shape, &values)
}

fn words(shape: &[usize], words: &[u32]) -> Tensor {
    Tensor {
        dtype: Dtype::U32,
        shape: shape.to_vec(),
        bytes: bytemuck::cast_slice(words).to_vec(),
    }
}

/// A tensor as stored in a file.
fn raw_tensor(path: &Path, name: &str) -> Option<Tensor> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(name).ok()?;
    Some(Tensor {
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    })
}

/// The bits of the elements that are above 0.
fn mask_of(y: &[f64]) -> u32 {
    let bits = y.iter().enumerate();
    bits.map(|(i, &y)| u32::from(y > 0.0) << i).sum()
}

fn assert_gradients(output: &Path, [diff_src, diff_gamma, diff_beta]: &[Vec<f64>; 3]) {
    assert_close(&values(output, "diff_src"), diff_src);
    assert_close(&values(output, "diff_gamma"), diff_gamma);
    assert_close(&values(output, "diff_beta"), diff_beta);
}

// ---- successes

#[test]
fn forward_by_hand() {
    for layer in LAYERS {
        let with_residual = || {
            layer
                .forward()
                .with("residual", layer.tensor::<f32>(residual))
        };
        let (plain, printed) = layer.run(
            "forward",
            "relu",
            &layer.forward(),
            &["--activation", "relu"],
        );
        assert_close(&values(&plain, "dst"), &layer.dst(no_residual, relu));
        assert!(raw_tensor(&plain, "mask").is_none());
        assert!(printed.contains(", relu, on "), "{printed}");

        // The attribute may also be in the file.
        let in_file = layer.forward().attribute("activation", "SiLU");
        let (smooth, _) = layer.run("forward", "silu", &in_file, &[]);
        assert_close(&values(&smooth, "dst"), &layer.dst(no_residual, silu));

        let (sum, printed) = layer.run("forward", "residual", &with_residual(), &[]);
        assert_close(&values(&sum, "dst"), &layer.before(residual));
        assert!(raw_tensor(&sum, "mask").is_none());
        assert!(printed.contains(" on ") && !printed.contains("relu"));

        let (both, printed) = layer.run(
            "forward",
            "both",
            &with_residual(),
            &["--activation", "relu"],
        );
        assert_close(&values(&both, "dst"), &layer.dst(residual, relu));
        assert_close(&values(&both, "mean"), &layer.mean());
        assert_close(&values(&both, "variance"), &layer.variance());
        let mask = raw_tensor(&both, "mask").unwrap();
        assert_eq!((mask.dtype, mask.shape), (Dtype::U32, vec![1]));
        let want = mask_of(&layer.before(residual));
        assert_eq!(mask.bytes, want.to_le_bytes());
        assert!(printed.contains("check mask: ok\n"), "{printed}");
    }
}

#[test]
fn inference_by_hand() {
    let layer = BATCH;
    let draft = layer
        .backward()
        .with("residual", layer.tensor::<f32>(residual));
    let (output, printed) = layer.run("inference", "both", &draft, &["--activation", "relu"]);
    assert_close(&values(&output, "dst"), &layer.dst(residual, relu));
    assert!(raw_tensor(&output, "mask").is_none() && !printed.contains("mask"));
    let (output, _) = layer.run("inference", "residual", &draft, &[]);
    assert_close(&values(&output, "dst"), &layer.before(residual));
    let plain = draft.without("residual");
    let (output, _) = layer.run("inference", "silu", &plain, &["--activation", "silu"]);
    assert_close(&values(&output, "dst"), &layer.dst(no_residual, silu));
}

#[test]
fn gradients_find_the_output_again() {
    for layer in LAYERS {
        for (name, activation) in [("relu", relu as fn(f64) -> f64), ("silu", silu)] {
            let y = layer.before(no_residual);
            let d = all(|i| diff_dst(i) * slope(activation, y[i]));
            let (output, _) =
                layer.run("backward", name, &layer.backward(), &["--activation", name]);
            assert_gradients(&output, &layer.gradients(&d));
            assert!(raw_tensor(&output, "diff_residual").is_none());
        }
        // Without an activation, beta may be there and is ignored. The flag takes precedence over the file.
        let in_file = layer.backward().attribute("activation", "relu");
        let (output, _) = layer.run("backward", "none", &in_file, &["--activation", "none"]);
        assert_gradients(&output, &layer.gradients(&all(diff_dst)));
    }
}

#[test]
fn a_mask_goes_from_the_forward_pass_to_the_gradient() {
    for layer in LAYERS {
        let forward = layer
            .forward()
            .with("residual", layer.tensor::<f32>(residual));
        let relu = ["--activation", "relu"];
        let (written, _) = layer.run("forward", "mask", &forward, &relu);
        // Everything that the forward pass read and wrote, in one file.
        let mut backward = forward.with("diff_dst", layer.tensor::<f32>(diff_dst));
        for name in ["mean", "variance", "mask"] {
            backward = backward.with(name, raw_tensor(&written, name).unwrap());
        }
        let (output, printed) = layer.run("backward", "mask", &backward, &relu);
        let y = layer.before(residual);
        let passed = all(|i| if y[i] > 0.0 { diff_dst(i) } else { 0.0 });
        assert_eq!(values(&output, "diff_residual"), passed);
        assert_gradients(&output, &layer.gradients(&passed));
        assert!(printed.contains("check diff_residual: ok"), "{printed}");
        let summary = "diff_src, diff_residual, diff_gamma, diff_beta of src f32";
        assert!(printed.contains(summary), "{printed}");
    }
}

#[test]
fn every_pair_of_element_types_is_checked() {
    fn pair<T: Element, P: Element>() {
        // All of them treat types in the same way.
        let is_f32 = T::DTYPE == DType::F32;
        for layer in if is_f32 { &LAYERS[..] } else { &LAYERS[..1] } {
            let name = |what: &str| format!("{what}-{}-{}", T::DTYPE, P::DTYPE);
            let relu = ["--activation", "relu"];
            let plain = layer.draft::<T, P>();
            let both = layer
                .draft::<T, P>()
                .with("residual", layer.tensor::<T>(residual));
            let (found, _) = layer.run("forward", &name("plain"), &plain, &relu);
            let (masked, _) = layer.run("forward", &name("both"), &both, &relu);
            let gradient = |mut draft: Draft, from: &Path, names: &[&'static str]| {
                draft = draft.with("diff_dst", layer.tensor::<T>(diff_dst));
                for name in names {
                    draft = draft.with(name, raw_tensor(from, name).unwrap());
                }
                draft
            };
            let plain = gradient(plain, &found, &["mean", "variance"]);
            let both = gradient(both, &masked, &["mean", "variance", "mask"]);
            layer.run("backward", &name("plain"), &plain, &relu);
            let silu = ["--activation", "silu"];
            if T::DTYPE != DType::F64 {
                layer.run("backward", &name("silu"), &plain, &silu);
            }
            let (output, _) = layer.run("backward", &name("both"), &both, &relu);
            let dtype = raw_tensor(&output, "diff_residual").unwrap().dtype;
            assert_eq!(dtype, layer.tensor::<T>(src).dtype);
        }
    }
    pair::<f32, f32>();
    pair::<f16, f32>();
    pair::<f16, f16>();
    pair::<bf16, f32>();
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    if gpu.supports(DType::F64) {
        pair::<f64, f64>();
    }
}

/// Parameters of src's rank, and constant statistics; gamma is used for the activation only.
#[test]
fn variants_of_gradients_are_checked() {
    let layer = BATCH;
    let shape = [1, 3, 1];
    let wide = |of: fn(usize) -> f64| {
        let values: Vec<f64> = (0..3).map(of).collect();
        filled::<f32>(&shape, &values)
    };
    let broadcast = layer
        .backward()
        .no_attribute("data_format")
        .with("gamma", wide(gamma))
        .with("beta", wide(beta))
        .with("mean", filled::<f32>(&shape, &layer.mean()))
        .with("variance", filled::<f32>(&shape, &layer.variance()));
    let relu = ["--activation", "relu"];
    let (one, _) = layer.run("backward", "axis", &layer.backward(), &relu);
    let (other, printed) = layer.run("backward", "broadcast", &broadcast, &relu);
    assert!(printed.contains("broadcast"), "{printed}");
    assert_close(&values(&other, "diff_src"), &values(&one, "diff_src"));

    let both = broadcast.with("residual", layer.tensor::<f32>(residual));
    let (written, _) = layer.run("forward", "broadcast", &both, &relu);
    assert_close(&values(&written, "dst"), &layer.dst(residual, self::relu));
    let both = both.with("mask", raw_tensor(&written, "mask").unwrap());
    let (output, _) = layer.run("backward", "broadcast-mask", &both, &relu);
    let y = layer.before(residual);
    let passed = all(|i| if y[i] > 0.0 { diff_dst(i) } else { 0.0 });
    assert_gradients(&output, &layer.gradients(&passed));

    let constant = ["--activation", "relu", "--statistics", "constant"];
    let (output, _) = layer.run("backward", "constant", &layer.backward(), &constant);
    let (y, r) = (layer.before(no_residual), layer.r());
    let want = all(|i| match y[i] > 0.0 {
        true => gamma((layer.channel)(i)) * r[i] * diff_dst(i),
        false => 0.0,
    });
    assert_close(&values(&output, "diff_src"), &want);

    for name in ["gamma", "beta"] {
        let without = layer.backward().without(name);
        layer.run("backward", &format!("no-{name}"), &without, &relu);
    }
}

/// An empty src has an empty mask, and a mask has no bits beyond the last element.
#[test]
fn masks_of_any_length() {
    let relu = ["--activation", "relu"];
    for (samples, length) in [(0, 0), (31, 1), (32, 1), (33, 2), (65, 3)] {
        let shape = [samples, 1];
        let of =
            |of: fn(usize) -> f64| filled::<f32>(&shape, &(0..samples).map(of).collect::<Vec<_>>());
        let draft = BATCH
            .forward()
            .without("gamma")
            .without("beta")
            .with("src", of(src))
            .with("residual", of(residual));
        let (written, _) = BATCH.run("forward", &format!("of-{samples}"), &draft, &relu);
        let mask = raw_tensor(&written, "mask").unwrap();
        assert_eq!(mask.shape, [length]);
        let mut draft = draft.with("diff_dst", of(diff_dst)).with("mask", mask);
        for name in ["mean", "variance"] {
            draft = draft.with(name, raw_tensor(&written, name).unwrap());
        }
        let (output, _) = BATCH.run("backward", &format!("of-{samples}"), &draft, &relu);
        assert_eq!(values(&output, "diff_residual").len(), samples);
    }
}

/// Where y is 0 within rounding error, either gradient is correct, and the check says so.
#[test]
fn rounding_may_decide() {
    for layer in LAYERS {
        let (mean, r, x_hat) = (layer.mean(), layer.r(), layer.x_hat());
        assert!(mean.len() > 1 && r.len() == ELEMENTS);
        // beta cancels one element of each channel.
        let mut beta = vec![0.0; layer.channels];
        (0..ELEMENTS).for_each(|i| {
            let c = (layer.channel)(i);
            beta[c] = -gamma(c) * x_hat[i];
        });
        let draft = layer
            .backward()
            .with("beta", filled::<f32>(&[layer.channels], &beta));
        let (_, printed) = layer.run("backward", "decide", &draft, &["--activation", "relu"]);
        let words = "either way for the elements whose activation rounding decides: ";
        for tensor in ["diff_src", "diff_gamma", "diff_beta"] {
            let line = printed
                .lines()
                .find(|line| line.starts_with(&format!("check {tensor}: ok")));
            assert!(line.is_some_and(|line| line.contains(words)), "{printed}");
        }
        let forward = layer
            .forward()
            .with("beta", filled::<f32>(&[layer.channels], &beta))
            .with("residual", layer.tensor::<f32>(no_residual));
        let (_, printed) = layer.run("forward", "decide", &forward, &["--activation", "relu"]);
        assert!(
            printed.contains(&format!("check mask: ok, {words}")),
            "{printed}"
        );
    }
}

#[test]
fn says_that_beta_is_0() {
    let folder = folder("no-beta");
    let (input, output) = (folder.join("in"), folder.join("out"));
    let says = "beta: not given, so it is 0";
    for layer in &LAYERS {
        let flags: &[&str] = match layer.name {
            "group-norm" => &["--groups", "2"],
            "batch-norm" => &["--data-format", "NCX"],
            _ => &[],
        };
        for (draft, activation, want) in [
            (layer.backward().without("beta"), "relu", true),
            (layer.backward(), "relu", false),
            (layer.backward().without("beta"), "none", false),
        ] {
            std::fs::write(&input, draft.bytes()).unwrap();
            let arguments = [flags, &["--activation", activation]].concat();
            let result = operate(&layer.operator("backward"), &input, &output, &arguments);
            assert_success(&result);
            let said = stderr(&result);
            assert_eq!(
                said.contains(says),
                want,
                "{} {activation}: {said}",
                layer.name
            );
        }
    }
}

// ---- refusals

#[test]
fn refuses_masks_that_do_not_fit() {
    let relu = ["--activation", "relu"];
    for layer in LAYERS {
        let refuse = |name: &str, mask: Tensor, arguments: &[&str], fragments: &[&str]| {
            let draft = layer.backward().with("mask", mask);
            let name = format!("{}-{name}", layer.name);
            let operator = layer.operator("backward");
            refuse_by(&operator, &name, &draft.bytes(), arguments, fragments);
        };
        let good = || words(&[1], &[7]);
        refuse(
            "alone",
            good(),
            &[],
            &["mask: expected none without --activation", "got one"],
        );
        let shape = [
            "mask: expected shape [1]",
            "a bit for each element",
            "got [2]",
        ];
        refuse("length", words(&[2], &[7, 0]), &relu, &shape);
        let shape = ["mask: expected shape [1]", "got [1, 1]"];
        refuse("rank", words(&[1, 1], &[7]), &relu, &shape);
        let dtype = ["mask: expected element type u32", "got f32"];
        refuse("dtype", filled::<f32>(&[1], &[1.0]), &relu, &dtype);
        let silu = ["--activation", "silu"];
        let words = ["activation: expected none or relu", "mask", "got silu"];
        refuse("silu", good(), &silu, &words);
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let relu = ["--activation", "relu"];
    for layer in LAYERS {
        let refuse = |pass: &str, draft: Draft, arguments: &[&str], fragments: &[&str]| {
            let operator = layer.operator(pass);
            let name = format!("{}-{pass}", layer.name);
            refuse_by(&operator, &name, &draft.bytes(), arguments, fragments);
        };
        let with = |residual: Tensor| layer.forward().with("residual", residual);
        let short = with(filled::<f32>(&[24], &all(residual)));
        refuse(
            "forward",
            short,
            &[],
            &["residual: expected shape", "as src", "got [24]"],
        );
        let narrow = with(layer.tensor::<f16>(residual));
        let dtype = ["residual: expected element type f32", "got f16"];
        refuse("forward", narrow, &relu, &dtype);
        let silu = ["--activation", "silu"];
        let both = with(layer.tensor::<f32>(residual));
        let words = ["activation: expected none or relu", "residual", "got silu"];
        refuse("forward", both, &silu, &words);

        // The gradient of a forward pass with a residual, but without its mask.
        let unmasked = layer
            .backward()
            .with("residual", layer.tensor::<f32>(residual));
        let missing = [
            "mask: expected a tensor of this name beside a residual",
            "got none",
        ];
        refuse("backward", unmasked, &relu, &missing);
        let one = layer.backward().with("beta", filled::<f32>(&[1], &[1.0]));
        refuse("backward", one, &relu, &["beta: expected shape", "got [1]"]);
        let narrow = layer.backward().with("beta", layer.param::<f16>(beta));
        let dtype = ["beta: expected element type f32", "got f16"];
        refuse("backward", narrow, &relu, &dtype);
        let unknown = layer.backward().attribute("activation", "selu");
        let words = [
            "metadata activation: expected none or relu or silu or gelu",
            "selu",
        ];
        refuse("backward", unknown, &[], &words);
        // An adapter without f64 reports that first.
        let double = layer.draft::<f64, f64>();
        refuse("forward", double, &silu, &["expected", "f64", "got"]);
    }
}
