//! The `wgpu-norm` command, run as a process, on the adapter that the environment chooses.

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use wgpu_norm::{DType, DeviceOptions, Element, GpuContext, Profile};

mod activation;
mod axes_norm;
mod batch_norm_forward;
mod broadcast;
mod files;
mod group_norm;
mod hostile;
mod layer_norm;
#[cfg(target_os = "linux")] // where a process tells its address space, and can be given less
mod memory;
mod metadata;
mod other_names;
mod pipeline_cache;
mod ranks;
mod rms_norm;
mod rows_forward;
mod streamed;

/// The subcommand that most tests here use.
const BATCH_NORM: &str = "batch-norm-backward";

/// All subcommands that work on files.
const OPERATORS: [&str; 13] = [
    BATCH_NORM,
    "batch-norm-forward",
    "batch-norm-inference",
    "layer-norm-backward",
    "layer-norm-forward",
    "rms-norm-backward",
    "rms-norm-forward",
    "group-norm-backward",
    "group-norm-forward",
    "group-norm-inference",
    "instance-norm-backward",
    "instance-norm-forward",
    "instance-norm-inference",
];

// ---- running

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wgpu-norm"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn backward(input: &Path, output: &Path, arguments: &[&str]) -> Output {
    operate(BATCH_NORM, input, output, arguments)
}

/// Runs an operator from `input` to `output`.
fn operate(operator: &str, input: &Path, output: &Path, arguments: &[&str]) -> Output {
    let mut command = command(&[operator]);
    command.arg(input).arg("-o").arg(output).args(arguments);
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

/// Exit code 1, nothing on stdout, no panic, and a message with all of `fragments`.
fn assert_failure(output: &Output, fragments: &[&str], what: &str) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{what}: {message}");
    assert_eq!(stdout(output), "", "{what}");
    assert!(!message.contains("panicked"), "{what}: {message}");
    let line = message.lines().rfind(|line| line.starts_with("error: "));
    let line = line.unwrap_or_else(|| panic!("{what}: {message}"));
    for fragment in fragments {
        assert!(
            line.contains(fragment),
            "{what}: no '{fragment}' in: {line}"
        );
    }
}

// ---- files

/// An empty folder for one test, not shared with others of the same name: it also has the name of the test's thread.
fn folder(name: &str) -> PathBuf {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test").replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("command")
        .join(test)
        .join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn vector(name: &str) -> PathBuf {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors");
    vectors.join(format!("{name}.safetensors"))
}

/// The names of the vectors that start with one text and contain the other.
fn vectors(start: &str, part: &str) -> Vec<String> {
    let files = names(vector("").parent().unwrap());
    let stems = files.iter().filter_map(|f| f.strip_suffix(".safetensors"));
    let chosen = stems.filter(|stem| stem.starts_with(start) && stem.contains(part));
    chosen.map(str::to_owned).collect()
}

struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn tensor<T: Element>(shape: &[usize], values: &[T]) -> Tensor {
    let dtype = match T::DTYPE {
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        _ => Dtype::F64,
    };
    Tensor {
        dtype,
        shape: shape.to_vec(),
        bytes: bytemuck::cast_slice(values).to_vec(),
    }
}

fn counting<T: Element>(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<T> = (0..count).map(|i| T::from_f64(i as f64 / 8.0)).collect();
    tensor(shape, &values)
}

/// A file for the command's input.
struct Draft {
    tensors: HashMap<&'static str, Tensor>,
    metadata: HashMap<String, String>,
}

impl Draft {
    /// src of shape `[3, 2]`, so with two channels in either format; variance 1 and epsilon 1.
    fn good() -> Self {
        let tensors = HashMap::from([
            ("src", counting::<f32>(&[3, 2])),
            ("diff_dst", counting::<f32>(&[3, 2])),
            ("mean", tensor(&[2], &[0.0_f32, 0.0])),
            ("variance", tensor(&[2], &[1.0_f32, 1.0])),
            ("gamma", tensor(&[2], &[2.0_f32, 2.0])),
        ]);
        let metadata = HashMap::new();
        Self { tensors, metadata }.attribute("epsilon", "1")
    }

    fn with(mut self, name: &'static str, tensor: Tensor) -> Self {
        self.tensors.insert(name, tensor);
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.tensors.remove(name);
        self
    }

    fn attribute(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    fn no_attribute(mut self, key: &str) -> Self {
        self.metadata.remove(key);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, tensor)| {
            let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
            (*name, view.unwrap())
        });
        safetensors::serialize(views, Some(self.metadata.clone())).unwrap()
    }
}

/// A safetensors file with this header.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; data]);
    bytes
}

/// A tensor of a file as f64, and its element type.
fn read(path: &Path, name: &str) -> Option<(Dtype, Vec<f64>)> {
    let (dtype, _, values) = read_shaped(path, name)?;
    Some((dtype, values))
}

fn read_shaped(path: &Path, name: &str) -> Option<(Dtype, Vec<usize>, Vec<f64>)> {
    fn to_f64<T: Element>(bytes: &[u8]) -> Vec<f64> {
        let values: Vec<T> = bytemuck::pod_collect_to_vec(bytes);
        values.iter().map(|value| value.to_f64()).collect()
    }
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(name).ok()?;
    let values = match view.dtype() {
        Dtype::F16 => to_f64::<f16>(view.data()),
        Dtype::BF16 => to_f64::<bf16>(view.data()),
        Dtype::F32 => to_f64::<f32>(view.data()),
        Dtype::F64 => to_f64::<f64>(view.data()),
        other => panic!("{other}"),
    };
    Some((view.dtype(), view.shape().to_vec(), values))
}

fn values(path: &Path, name: &str) -> Vec<f64> {
    read(path, name).unwrap_or_else(|| panic!("no {name}")).1
}

fn diff_src(name: &str, draft: &Draft, arguments: &[&str]) -> Vec<f64> {
    diff_src_by(BATCH_NORM, name, draft, arguments)
}

/// Writes the file, runs the operator, and returns diff_src.
fn diff_src_by(operator: &str, name: &str, draft: &Draft, arguments: &[&str]) -> Vec<f64> {
    let folder = folder(name);
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    assert_success(&operate(operator, &input, &output, arguments));
    values(&output, "diff_src")
}

fn assert_close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < 1e-5, "got {got}, want {want}");
    }
}

// ---- successes

fn check_vector(name: &str, arguments: &[&str]) {
    check_vector_by(BATCH_NORM, name, arguments);
}

/// Runs a vector with `--check` and compares the file written with the answers in the vector.
fn check_vector_by(operator: &str, name: &str, arguments: &[&str]) {
    let input = vector(name);
    let output = folder(&format!(
        "vector-{}-{}",
        name.replace('/', "-"),
        arguments.concat()
    ))
    .join("out.safetensors");
    let arguments = [&["--check"], arguments].concat();
    let result = operate(operator, &input, &output, &arguments);
    assert_success(&result);

    let expected = |tensor: &str| read_shaped(&input, &format!("expected.{tensor}"));
    let tensors: Vec<&str> = ["diff_src", "diff_gamma", "diff_beta"]
        .into_iter()
        .filter(|tensor| expected(tensor).is_some())
        .collect();
    let text = stdout(&result);
    let lines: Vec<&str> = text.lines().collect();
    let Some((summary, checks)) = lines.split_last() else {
        panic!("{name}: nothing printed");
    };
    assert_eq!(checks.len(), tensors.len(), "{name}: {checks:?}");
    for (line, tensor) in checks.iter().zip(&tensors) {
        let start = format!("check {tensor}: ok, largest error ");
        let end = " % of what rounding may cause";
        assert!(
            line.starts_with(&start) && line.ends_with(end),
            "{name}: {line}"
        );
    }
    let start = format!("{} of src ", tensors.join(", "));
    assert!(summary.starts_with(&start), "{name}: {summary}");
    assert!(summary.ends_with("out.safetensors"), "{name}: {summary}");

    let dtype_of = |name| read(&input, name).unwrap().0;
    for tensor in tensors {
        let (dtype, shape, got) = read_shaped(&output, tensor).unwrap();
        let like = if tensor == "diff_src" { "src" } else { "mean" };
        assert_eq!(dtype, dtype_of(like), "{name}: {tensor}");
        let roundoff = match dtype {
            Dtype::BF16 => 1.0 / 256.0,
            Dtype::F16 => 1.0 / 2048.0,
            _ => 0.0,
        };
        let (_, want_shape, want) = expected(tensor).unwrap();
        assert_eq!(shape, want_shape, "{name}: {tensor}");
        let largest = want
            .iter()
            .fold(0.0_f64, |most, value| most.max(value.abs()));
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            let tolerance = roundoff * want.abs() + 1e-5 * largest;
            assert!(
                (got - want).abs() <= tolerance,
                "{name}: {tensor}: {got} for {want}"
            );
        }
    }
}

#[test]
fn vectors_of_every_element_type() {
    check_vector("real/digits_layer1", &[]);
    check_vector("bn_f32_no_gamma", &[]);
    check_vector("bn_f32_constant_statistics", &[]);
    check_vector("bn_f16_f32", &[]);
    check_vector("bn_bf16_f32", &[]);
    check_vector("bn_bf16_bf16_nxc", &[]);
}

#[test]
fn f64_where_the_adapter_has_it() {
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    if gpu.supports(DType::F64) {
        check_vector("bn_f64_ncx", &[]);
    } else {
        let folder = folder("no-f64");
        let result = backward(&vector("bn_f64_ncx"), &folder.join("out"), &[]);
        assert_failure(&result, &["f64 tensors", "SHADER_F64"], "f64");
        assert!(names(&folder).is_empty());
    }
}

#[test]
fn says_what_it_assumes() {
    let square = |channels: usize| {
        let mut draft = Draft::good();
        for name in ["src", "diff_dst"] {
            draft = draft.with(name, counting::<f32>(&[4, channels, 2]));
        }
        draft
    };
    let huge = Draft::good()
        .with("src", counting::<f16>(&[3, 2]))
        .with("diff_dst", tensor(&[3, 2], &[f16::MAX; 6]));
    let constant = ["--statistics", "constant"];
    let op = |op| Draft::good().attribute("op", op);
    let cases: [(&str, Draft, &[&str], &str); 6] = [
        (
            "ambiguous",
            square(2),
            &[],
            "data_format: not given, so NXC",
        ),
        ("told", square(2), &["--data-format", "NXC"], ""),
        ("frozen", Draft::good(), &["--param-grads", "false"], ""),
        ("own", op("batch_norm_backward"), &[], ""),
        (
            "other",
            op("layer_norm_backward"),
            &[],
            "metadata op: expected batch_norm_backward, got layer_norm_backward",
        ),
        (
            "huge",
            huge,
            &constant,
            "diff_src: 6 of 6 elements are not finite",
        ),
    ];
    for (name, draft, arguments, warning) in cases {
        let folder = folder(&format!("says-{name}"));
        let (input, output) = (folder.join("in"), folder.join("out"));
        std::fs::write(&input, draft.bytes()).unwrap();
        let result = backward(&input, &output, arguments);
        assert_success(&result);
        let message = stderr(&result);
        let about = message.lines().filter(|line| {
            let expected = ["data_format:", "gamma:", "metadata op:", "diff_"];
            expected.iter().any(|start| line.contains(start))
        });
        let about = about.collect::<String>();
        assert!(about.contains(warning), "{name}: {message}");
        assert_eq!(about.is_empty(), warning.is_empty(), "{name}: {message}");
        assert!(stdout(&result).contains(", NXC, epsilon 1e0, "), "{name}");
    }
}

#[test]
fn backends_by_flag() {
    let backends = [
        ("vulkan", wgpu::Backends::VULKAN),
        ("gl", wgpu::Backends::GL),
        ("metal", wgpu::Backends::METAL),
        ("dx12", wgpu::Backends::DX12),
    ];
    let environment = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::all());
    for (name, backend) in backends {
        if !environment.contains(backend) {
            continue;
        }
        let adapters = pollster::block_on(wgpu_norm::adapters(backend));
        if adapters
            .iter()
            .any(|adapter| wgpu_norm::unfit(adapter).is_none())
        {
            check_vector("real/digits_layer8", &["--backend", name]);
        } else {
            println!("no adapter by {name}");
            let listed = run(&["adapters", "--backend", name]);
            assert!(adapters.is_empty() == (listed.status.code() == Some(1)));
        }
    }
}

#[test]
fn f16_parameters_beside_f16_data() {
    let draft = Draft::good()
        .with("src", counting::<f16>(&[3, 2]))
        .with("diff_dst", counting::<f16>(&[3, 2]))
        .with("mean", tensor(&[2], &[f16::ZERO; 2]))
        .with("variance", tensor(&[2], &[f16::ONE; 2]))
        .without("gamma");
    let folder = folder("f16");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    assert_success(&backward(&input, &output, &["--check"]));
    let dtype = |name| read(&output, name).unwrap().0;
    assert_eq!(dtype("diff_src"), Dtype::F16);
    assert_eq!(dtype("diff_gamma"), Dtype::F16);
    assert_eq!(values(&output, "diff_beta"), [0.75, 1.125]);
}

/// diff_dst / √(variance + epsilon), times gamma, which is 2.
fn constant(epsilon: f64) -> Vec<f64> {
    let scale = 2.0 / (1.0 + epsilon).sqrt();
    (0..6).map(|i| f64::from(i) / 8.0 * scale).collect()
}

#[test]
fn flag_before_metadata_before_default() {
    let draft = || Draft::good().attribute("statistics", "constant");
    assert_close(&diff_src("epsilon-metadata", &draft(), &[]), &constant(1.0));
    let by_flag = diff_src("epsilon-flag", &draft(), &["--epsilon", "3"]);
    assert_close(&by_flag, &constant(3.0));

    let batch = diff_src("statistics-default", &Draft::good(), &[]);
    assert!((batch[0] - constant(1.0)[0]).abs() > 0.1);
    let by_flag = diff_src(
        "statistics-flag",
        &Draft::good(),
        &["--statistics", "constant"],
    );
    assert_close(&by_flag, &constant(1.0));
    let by_flag = diff_src("statistics-both", &draft(), &["--statistics", "batch"]);
    assert_eq!(by_flag, batch);

    // Three channels as NCX, two as NXC.
    let ncx = |draft: Draft| {
        draft
            .with("src", counting::<f32>(&[1, 3, 2]))
            .with("diff_dst", counting::<f32>(&[1, 3, 2]))
            .with("mean", tensor(&[3], &[0.0_f32; 3]))
            .with("variance", tensor(&[3], &[1.0_f32; 3]))
            .with("gamma", tensor(&[3], &[2.0_f32; 3]))
    };
    let by_metadata = ncx(draft()).attribute("data_format", "NCX");
    assert_close(
        &diff_src("format-metadata", &by_metadata, &[]),
        &constant(1.0),
    );
    let against_metadata = ncx(draft()).attribute("data_format", "NXC");
    let by_flag = diff_src("format-flag", &against_metadata, &["--data-format", "NCX"]);
    assert_close(&by_flag, &constant(1.0));
    refuse(
        "format-default",
        &ncx(draft()).bytes(),
        &[],
        &["mean", "[2]", "[3]"],
    );
}

#[test]
fn a_frozen_layer_has_no_parameter_gradients() {
    let folder = folder("param-grads");
    let (input, output) = (folder.join("in"), folder.join("out"));
    let draft = Draft::good().attribute("statistics", "constant");
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = backward(&input, &output, &["--param-grads", "false", "--check"]);
    assert_success(&result);
    assert_eq!(stdout(&result).lines().count(), 2);
    assert_close(&values(&output, "diff_src"), &constant(1.0));
    assert!(read(&output, "diff_gamma").is_none() && read(&output, "diff_beta").is_none());
}

#[test]
fn other_tensors_change_nothing() {
    let strange = Tensor {
        dtype: Dtype::I64,
        shape: vec![1],
        bytes: vec![0; 8],
    };
    let draft = Draft::good()
        .with("beta", counting::<f16>(&[7]))
        .with("step", strange)
        .attribute("statistics", "constant");
    assert_close(&diff_src("others", &draft, &["--check"]), &constant(1.0));
}

#[test]
fn an_empty_batch_has_zeros() {
    let draft = Draft::good()
        .with("src", counting::<f32>(&[0, 2]))
        .with("diff_dst", counting::<f32>(&[0, 2]));
    let folder = folder("empty-batch");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    assert_success(&backward(&input, &output, &["--check"]));
    assert!(values(&output, "diff_src").is_empty());
    assert_eq!(values(&output, "diff_gamma"), [0.0, 0.0]);
    assert_eq!(values(&output, "diff_beta"), [0.0, 0.0]);
}

#[test]
fn the_output_may_be_the_input() {
    let folder = folder("in-place");
    let file = folder.join("file");
    std::fs::write(&file, Draft::good().bytes()).unwrap();
    assert_success(&backward(&file, &file, &[]));
    assert_eq!(values(&file, "diff_src").len(), 6);
    assert!(read(&file, "src").is_none());
    assert_eq!(names(&folder), ["file"]);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link() {
    let folder = folder("link");
    let (input, target, link) = (
        folder.join("in"),
        folder.join("target"),
        folder.join("link"),
    );
    std::fs::write(&input, Draft::good().bytes()).unwrap();
    std::fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_success(&backward(&input, &link, &[]));
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(values(&target, "diff_src").len(), 6);
}

#[test]
fn lists_adapters() {
    let result = run(&["adapters"]);
    assert_success(&result);
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    let list = stdout(&result);
    assert!(list.contains(&gpu.adapter_info().name), "{list}");
    for row in [
        "backend",
        "kind",
        "driver",
        "element types    f16 bf16 f32",
        "storage binding",
    ] {
        assert!(list.contains(row), "no '{row}' in: {list}");
    }
}

/// Drivers look for a desktop that is not there.
#[test]
fn no_word_about_a_missing_desktop() {
    for folder in [None, Some(""), Some("relative")] {
        let mut command = command(&["adapters"]);
        command.env_remove("XDG_RUNTIME_DIR");
        command.envs(folder.map(|folder| ("XDG_RUNTIME_DIR", folder)));
        let result = command.output().unwrap();
        assert_success(&result);
        assert!(!stderr(&result).contains("XDG"), "{}", stderr(&result));
    }
}

/// The list describes an adapter as a context on it does.
#[test]
fn the_list_knows_what_contexts_know() {
    for adapter in pollster::block_on(wgpu_norm::adapters(wgpu::Backends::all())) {
        let gpu = GpuContext::from_adapter(&adapter, DeviceOptions::default());
        match pollster::block_on(gpu) {
            Ok(gpu) => {
                let mut listed = Profile::for_adapter(&adapter);
                listed.f16_encoder = gpu.profile().f16_encoder; // known once a device is probed
                assert_eq!(listed, *gpu.profile());
            }
            Err(error) => println!("{}: {error}", adapter.get_info().name),
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder("pipe");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, Draft::good().bytes()).unwrap();
    let mut backward = command(&["batch-norm-backward", "--check"]);
    backward.arg(&input).arg("-o").arg(&output);
    for mut command in [backward, command(&["adapters"])] {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        assert_success(&child.wait_with_output().unwrap());
    }
    assert_eq!(values(&output, "diff_src").len(), 6);
}

// ---- refusals

fn refuse(name: &str, bytes: &[u8], arguments: &[&str], fragments: &[&str]) {
    refuse_by(BATCH_NORM, name, bytes, arguments, fragments);
}

/// The operator refuses this file with a message that has `fragments`, writes nothing, and leaves an existing output as
/// it was.
fn refuse_by(operator: &str, name: &str, bytes: &[u8], arguments: &[&str], fragments: &[&str]) {
    let folder = folder(&format!("refuse-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, bytes).unwrap();
    let run = || operate(operator, &input, &output, arguments);
    assert_failure(&run(), fragments, name);
    assert_eq!(names(&folder), ["in"], "{name}");

    std::fs::write(&output, "old").unwrap();
    assert_failure(&run(), fragments, name);
    assert_eq!(std::fs::read(&output).unwrap(), b"old", "{name}");
    assert_eq!(names(&folder), ["in", "out"], "{name}");
}

/// A flag is invalid, whatever the file: exit code 2, and a message that has `fragments`.
fn refuse_flags(operator: &str, flags: &[&str], fragments: &[&str]) {
    let result = operate(operator, Path::new("in"), Path::new("out"), flags);
    let message = stderr(&result);
    assert_eq!(result.status.code(), Some(2), "{flags:?}: {message}");
    assert_eq!(stdout(&result), "", "{flags:?}");
    for fragment in fragments {
        assert!(message.contains(fragment), "no '{fragment}' in: {message}");
    }
}

fn refuse_draft(name: &str, draft: &Draft, fragments: &[&str]) {
    refuse(name, &draft.bytes(), &[], fragments);
}

#[test]
fn refuses_missing_tensors() {
    for name in ["src", "diff_dst", "mean", "variance"] {
        let draft = Draft::good().without(name);
        refuse_draft(name, &draft, &[&format!("error: {name}: "), "got none"]);
    }
}

#[test]
fn refuses_element_types() {
    let integers = Tensor {
        dtype: Dtype::I64,
        shape: vec![3, 2],
        bytes: vec![0; 48],
    };
    let draft = Draft::good().with("src", integers);
    refuse_draft(
        "i64",
        &draft,
        &["src: expected", "f16 or bf16 or f32 or f64", "got i64"],
    );
    let draft = Draft::good().with("diff_dst", counting::<f16>(&[3, 2]));
    refuse_draft("diff-dst", &draft, &["diff_dst: expected", "f32, got f16"]);
    let draft = Draft::good().with("mean", counting::<f64>(&[2]));
    refuse_draft("mean", &draft, &["mean: expected", "f32, got f64"]);
    let bf16_parameters = || {
        Draft::good()
            .with("src", counting::<bf16>(&[3, 2]))
            .with("diff_dst", counting::<bf16>(&[3, 2]))
    };
    let draft = bf16_parameters().with("mean", counting::<f16>(&[2]));
    refuse_draft(
        "mean-f16",
        &draft,
        &["mean: expected", "bf16 or f32, got f16"],
    );
    let draft = bf16_parameters().with("variance", counting::<bf16>(&[2]));
    refuse_draft("variance", &draft, &["variance: expected", "f32, got bf16"]);
    let draft = bf16_parameters().with("gamma", counting::<f16>(&[2]));
    refuse_draft(
        "gamma",
        &draft,
        &["gamma: expected", "bf16 or f32, got f16"],
    );
    let bf16_statistics = bf16_parameters()
        .with("mean", counting::<bf16>(&[2]))
        .with("variance", counting::<bf16>(&[2]));
    let fragments = ["gamma: expected element type bf16", "got f32"];
    refuse_draft("gamma-f32", &bf16_statistics, &fragments);
}

#[test]
fn refuses_shapes() {
    // As long as src.
    let draft = Draft::good().with("diff_dst", counting::<f32>(&[2, 3]));
    refuse_draft(
        "diff-dst",
        &draft,
        &["diff_dst: expected", "[3, 2]", "got [2, 3]"],
    );
    for name in ["mean", "variance", "gamma"] {
        let draft = Draft::good().with(name, counting::<f32>(&[3]));
        refuse_draft(
            name,
            &draft,
            &[&format!("{name}: expected"), "[2]", "got [3]"],
        );
        let draft = Draft::good().with(name, counting::<f32>(&[1, 2]));
        refuse_draft(
            name,
            &draft,
            &[&format!("{name}: expected"), "[2]", "got [1, 2]"],
        );
    }
    for (name, shape) in [
        ("rank-1", vec![2]),
        ("rank-9", vec![1, 1, 1, 1, 1, 1, 1, 1, 2]),
    ] {
        let draft = Draft::good()
            .with("src", counting::<f32>(&shape))
            .with("diff_dst", counting::<f32>(&shape));
        refuse_draft(
            name,
            &draft,
            &["src: expected a rank from 2 to 8", &shape.len().to_string()],
        );
    }
}

#[test]
fn refuses_attributes() {
    let draft = || Draft::good().no_attribute("epsilon");
    refuse_draft(
        "no-epsilon",
        &draft(),
        &["epsilon: expected --epsilon", "neither"],
    );
    let bad = draft().attribute("epsilon", "small");
    refuse_draft(
        "epsilon",
        &bad,
        &["metadata epsilon: expected a finite", "\"small\""],
    );
    for epsilon in ["0", "-1", "nan", "inf", "small"] {
        let given = format!("'{epsilon}' for '--epsilon");
        for operator in OPERATORS {
            let fragments = [&*given, "expected a finite, normal number above 0"];
            refuse_flags(operator, &["--epsilon", epsilon], &fragments);
        }
        let bad = draft().attribute("epsilon", epsilon);
        let given = format!("got {epsilon:?}");
        refuse_draft(
            "epsilon-range",
            &bad,
            &["epsilon: expected a finite", &given],
        );
    }
    // Valid in f64, but 0 in f32: the file decides.
    let (bytes, fragments) = (draft().bytes(), ["epsilon: expected a finite", "as f32"]);
    refuse("epsilon-flag", &bytes, &["--epsilon", "1e-60"], &fragments);
    let bad = Draft::good().attribute("data_format", "NHWC");
    refuse_draft(
        "format",
        &bad,
        &[
            "metadata data_format: expected NCX or NXC or broadcast",
            "NHWC",
        ],
    );
    let bad = Draft::good().attribute("statistics", "");
    refuse_draft(
        "statistics",
        &bad,
        &["metadata statistics: expected batch or constant"],
    );
    let bad = Draft::good().with("variance", tensor(&[2], &[1.0_f32, -1.0]));
    refuse_draft(
        "variance",
        &bad,
        &["variance: expected", "-1.0 + 1.0", "channel 1"],
    );
    let bad = Draft::good().with("variance", tensor(&[2], &[1.0_f32, f32::INFINITY]));
    let fragments = ["variance: expected", "finite", "inf + 1", "channel 1"];
    refuse_draft("infinite-variance", &bad, &fragments);
    refuse_by(
        "batch-norm-inference",
        "infinite-inference",
        &bad.bytes(),
        &[],
        &fragments,
    );
}

#[test]
fn refuses_malformed_files() {
    let good = Draft::good().bytes();
    let cut = |length: usize| good[..length].to_vec();
    let mut trailing = good.clone();
    trailing.push(0);
    let mut not_utf8 = good.clone();
    not_utf8[9] = 0xff;
    let entry = |shape: &str, start: u64, end: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let eighth = (1_u64 << 61) - 1;
    let bytes = |i: u64| {
        let (start, end) = (i * eighth, (i + 1) * eighth);
        format!(r#""t{i}":{{"dtype":"U8","shape":[{eighth}],"data_offsets":[{start},{end}]}}"#)
    };
    let wrapping: Vec<String> = (0..8).map(bytes).collect();
    let huge = (1_u64 << 62).to_string();
    let cases = [
        ("empty", vec![], "at least 8 bytes"),
        ("no-header", cut(7), "at least 8 bytes"),
        (
            "in-header",
            cut(40),
            "safetensors file, with a header of at most",
        ),
        ("in-data", cut(good.len() - 1), "bytes of tensors"),
        ("trailing", trailing, "bytes of tensors"),
        ("not-utf8", not_utf8, "safetensors header"),
        (
            "header-huge",
            u64::MAX.to_le_bytes().to_vec(),
            "safetensors file, with a header of at most",
        ),
        ("not-json", raw("{]", 0), "safetensors header"),
        (
            "deep",
            raw(&"{\"a\":".repeat(100_000), 0),
            "safetensors header",
        ),
        ("arrays", raw(&"[".repeat(100_000), 0), "safetensors header"),
        (
            "text",
            b"This is not a safetensors file.".to_vec(),
            "safetensors file, with a header of at most",
        ),
        (
            "overlap",
            raw(
                &format!(
                    r#"{{"src":{},"mean":{}}}"#,
                    entry("[2]", 0, 8),
                    entry("[2]", 4, 12)
                ),
                12,
            ),
            "safetensors header",
        ),
        (
            "outside",
            raw(
                &format!(r#"{{"src":{}}}"#, entry("[1000000]", 0, 4_000_000)),
                8,
            ),
            "4000000 bytes of tensors",
        ),
        (
            "backwards",
            raw(&format!(r#"{{"src":{}}}"#, entry("[2]", 8, 0)), 8),
            "safetensors header",
        ),
        (
            "product",
            raw(
                &format!(r#"{{"src":{}}}"#, entry(&format!("[{huge},{huge}]"), 0, 8)),
                8,
            ),
            "safetensors header",
        ),
        (
            "sum",
            raw(&format!("{{{}}}", wrapping.join(",")), 0),
            "bytes of tensors",
        ),
        (
            "negative",
            raw(
                r#"{"src":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
                8,
            ),
            "safetensors header",
        ),
        (
            "dtype",
            raw(
                r#"{"src":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}"#,
                8,
            ),
            "safetensors header",
        ),
    ];
    for (name, bytes, expected) in cases {
        refuse(
            name,
            &bytes,
            &["--epsilon", "1"],
            &["in: expected", expected, "got"],
        );
    }
}

/// Files of other kinds are named, with the way to a safetensors file.
#[test]
fn refuses_other_formats() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\n\
        oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    let torch = b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0archive/data.pkl";
    // As a length, these are few enough bytes for a header.
    let mut zip = b"PK\x03\x04\0\0\0\0\0\0\0\0".to_vec();
    zip.resize(68 << 20, 0);
    let old_torch = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    let numpy = b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
    for (name, bytes, fragments) in [
        ("lfs", &pointer[..], ["Git LFS pointer", "git lfs pull"]),
        ("zip", torch, [".pt", "safetensors.torch.save_file"]),
        ("large-zip", &zip, [".pt", "safetensors.torch.save_file"]),
        ("pickle", old_torch, [".pt", "safetensors.torch.save_file"]),
        ("npy", numpy, [".npy", "safetensors.numpy.save_file"]),
    ] {
        let fragments = [&["in: expected a safetensors"], &fragments[..]].concat();
        refuse(name, bytes, &["--epsilon", "1"], &fragments);
    }
}

/// An empty tensor may have any other sizes in the file.
#[test]
fn refuses_sizes_that_overflow_beside_a_zero() {
    let empty = |shape: &str, at: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{at},{at}]}}"#)
    };
    let parameter = |at: u64| {
        let end = at + 8;
        format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":[{at},{end}]}}"#)
    };
    let huge = u64::MAX;
    let shape = format!("[0,{huge},2]");
    let header = format!(
        r#"{{"src":{},"diff_dst":{},"mean":{},"variance":{}}}"#,
        empty(&shape, 0),
        empty(&shape, 0),
        parameter(0),
        parameter(8)
    );
    let bytes = raw(&header, 16);
    refuse(
        "overflow",
        &bytes,
        &["--epsilon", "1"],
        &["src: expected a size of at most", "[0, "],
    );
}

#[test]
fn refuses_paths() {
    let folder = folder("paths");
    let good = folder.join("in");
    std::fs::write(&good, Draft::good().bytes()).unwrap();
    let inside = folder.join("folder");
    std::fs::create_dir(&inside).unwrap();

    let missing = folder.join("missing");
    let result = backward(&missing, &folder.join("out"), &[]);
    assert_failure(&result, &["missing: cannot be read"], "missing");
    let result = backward(&inside, &folder.join("out"), &[]);
    assert_failure(
        &result,
        &["expected a regular file, got a directory"],
        "directory",
    );

    let result = backward(&good, &inside, &[]);
    assert_failure(
        &result,
        &["folder: cannot be written", "got a directory"],
        "onto a folder",
    );
    let result = backward(&good, &folder.join("new/"), &[]);
    assert_failure(
        &result,
        &["cannot be written", "folder's"],
        "a folder's name",
    );
    #[cfg(unix)]
    {
        // Stdout is a pipe here.
        let result = backward(&good, Path::new("/dev/stdout"), &[]);
        assert_failure(
            &result,
            &["stdout: cannot be written", "got a pipe"],
            "stdout",
        );
    }
    let result = backward(&good, &missing.join("out"), &[]);
    assert_failure(&result, &["out: cannot be written"], "into no folder");
    let result = backward(&good, &good.join("out"), &[]);
    assert_failure(&result, &["out: cannot be written"], "into a file");
    #[cfg(unix)]
    {
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket);
        if socket.exists() {
            let result = backward(&good, &socket, &[]);
            assert_failure(&result, &["expected a regular file"], "onto a socket");
            std::fs::remove_file(&socket).unwrap();
        }
    }
    assert_eq!(names(&folder), ["folder", "in"]);
    assert!(names(&inside).is_empty());
}

#[test]
fn refuses_unknown_adapters() {
    let bytes = Draft::good().bytes();
    let arguments = ["--adapter", "no such thing"];
    refuse(
        "adapter",
        &bytes,
        &arguments,
        &["adapter: expected", "no such thing", "got none"],
    );
    let result = run(&["adapters", "--adapter", "no such thing"]);
    assert_failure(
        &result,
        &["adapter: expected", "no such thing", "got none"],
        "adapters",
    );
}

/// Sums that exceed f32's range while the float64 reference stays in range.
#[test]
fn a_failed_check_writes_nothing() {
    let draft = Draft::good()
        .with("src", tensor(&[3, 2], &[0.0_f32; 6]))
        .with("diff_dst", tensor(&[3, 2], &[3e38_f32; 6]))
        .with("variance", tensor(&[2], &[1e20_f32; 2]));
    let folder = folder("check");
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let result = backward(&input, &output, &["--check"]);
    let message = stderr(&result);
    assert_eq!(result.status.code(), Some(1), "{message}");
    assert!(
        message.contains("diff_src; nothing was written"),
        "{message}"
    );
    assert!(
        stdout(&result).starts_with("check diff_src: wrong, not finite where the reference is")
    );
    assert_eq!(names(&folder), ["in"]);
    assert_success(&backward(&input, &output, &[]));
}

/// Where squares overflow, NaN is documented. Other results are checked nevertheless.
#[test]
fn a_check_accepts_what_squares_beyond_f32_give() {
    let from = |large: f32, small: f32| -> Vec<f32> {
        let shares = (0..16).map(|i| ((37 * i) % 101) as f32 / 50.0 - 1.0);
        let sizes = [large, small].into_iter().flat_map(|size| [size; 8]);
        sizes
            .zip(shares)
            .map(|(size, share)| size * share)
            .collect()
    };
    for (operator, flags) in [
        ("layer-norm-forward", &[][..]),
        ("rms-norm-forward", &[]),
        ("layer-norm-forward", &["--activation", "relu"]),
        ("instance-norm-forward", &[]),
        ("instance-norm-forward", &["--activation", "relu"]),
        ("group-norm-forward", &["--groups", "1"]),
        (
            "batch-norm-forward",
            &[
                "--epsilon",
                "1",
                "--data-format",
                "NCX",
                "--running-weight",
                "0.5",
            ],
        ),
        ("axes-norm-forward", &["--axes", "-1", "--param-axes", "-1"]),
        (
            "axes-norm-forward",
            &["--axes", "-1", "--param-axes", "-1", "--centered", "false"],
        ),
    ] {
        let over_rows = ["layer", "rms", "axes"]
            .iter()
            .any(|norm| operator.starts_with(norm));
        let (shape, gamma): (&[usize], usize) = match operator {
            _ if over_rows => (&[2, 8], 8),
            "batch-norm-forward" => (&[1, 2, 8], 2),
            _ => (&[2, 1, 8], 1),
        };
        // The squares themselves, their sum alone, and a mean beyond f32.
        for large in [3e19, 1.1e19, 3e38] {
            let mut draft = Draft {
                tensors: HashMap::new(),
                metadata: HashMap::new(),
            };
            draft = draft.with("src", tensor(shape, &from(large, 1.0)));
            draft = draft.with("gamma", tensor(&[gamma], &vec![1.0_f32; gamma]));
            if operator == "batch-norm-forward" {
                draft = draft.with("running_mean", tensor(&[2], &[0.0_f32; 2]));
                draft = draft.with("running_variance", tensor(&[2], &[1.0_f32; 2]));
            }
            if operator == "instance-norm-forward" && !flags.is_empty() {
                // With a mask.
                draft = draft.with("residual", tensor(shape, &[0.0_f32; 16]));
            }
            let name = format!("overflow-{operator}-{large}-{}", flags.concat());
            let folder = folder(&name);
            let (input, output) = (folder.join("in"), folder.join("out"));
            std::fs::write(&input, draft.bytes()).unwrap();
            let result = operate(operator, &input, &output, &[flags, &["--check"]].concat());
            assert_success(&result);
            let dst = values(&output, "dst");
            let (first, second) = dst.split_at(8);
            assert!(
                second.iter().all(|value| value.is_finite()),
                "{name}: {dst:?}"
            );
            if large != 1.1e19 {
                assert!(first.iter().all(|value| value.is_nan()), "{name}: {dst:?}");
            }
        }
    }
}

/// Help lists the files' tensors, both required and optional ones.
#[test]
fn help_lists_the_tensors() {
    let axes = ["backward", "forward", "inference"].map(|pass| format!("axes-norm-{pass}"));
    let axes = axes.iter().map(String::as_str);
    for operator in OPERATORS.into_iter().chain(axes) {
        let (norm, pass) = operator.rsplit_once('-').unwrap();
        let (gate, diff_gate): (&[&str], &[&str]) = match norm {
            "axes-norm" => (&["gate"], &["diff_gate"]),
            _ => (&[], &[]),
        };
        let rows = ["layer-norm", "rms-norm"].contains(&norm);
        let statistics: &[&str] = match norm {
            "rms-norm" => &["mean_square"],
            _ => &["mean", "variance"],
        };
        let running: &[&str] = match operator {
            "batch-norm-forward" => &["running_mean", "running_variance"],
            _ => &[],
        };
        let beta: &[&str] = match (norm, pass) {
            ("rms-norm", _) | ("layer-norm", "backward") => &[],
            _ => &["beta"],
        };
        let beyond: &[&str] = match (rows, pass) {
            (true, "forward") => &["sum"],
            (false, "forward") => &["mask"],
            _ => &[],
        };
        let ([read, may_be_read], [written, may_be_written]) = match pass {
            "forward" => (
                [vec!["src"], [&["residual"], beta, gate, running].concat()],
                [[&["dst"], statistics].concat(), [beyond, running].concat()],
            ),
            "inference" => (
                [
                    [&["src"], statistics].concat(),
                    [&["residual"], beta, gate].concat(),
                ],
                [vec!["dst"], vec![]],
            ),
            _ => (
                [
                    [&["src", "diff_dst"], statistics].concat(),
                    match norm {
                        "rms-norm" => vec![],
                        "layer-norm" => vec!["beta"],
                        _ => [&["mask", "beta"], gate].concat(),
                    },
                ],
                [
                    vec!["diff_src"],
                    match norm {
                        "rms-norm" => vec!["diff_gamma"],
                        "layer-norm" => vec!["diff_gamma", "diff_beta"],
                        _ => [&["diff_residual", "diff_gamma", "diff_beta"], diff_gate].concat(),
                    },
                ],
            ),
        };
        let (read, may_be_read) = match norm {
            "layer-norm" => ([&read[..], &["gamma"]].concat(), may_be_read),
            _ => (read, [&may_be_read[..], &["gamma"]].concat()),
        };
        let help = stdout(&run(&[operator, "--help"]));
        for (head, always, optional) in [
            ("Tensors of IN:", read, may_be_read),
            ("Tensors of OUT:", written, may_be_written),
        ] {
            let (_, list) = help.split_once(head).unwrap();
            let lines = list.lines().skip(1).take_while(|line| !line.is_empty());
            let lines: Vec<_> = lines.collect();
            let described =
                |line: &&str| line.replace("optional:", "").split_whitespace().count() > 1;
            assert!(lines.iter().all(described), "{operator}: {list}");
            let lines = lines.into_iter();
            let (may_be, is): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains("optional:"));
            let sorted = |mut names: Vec<&'static str>| {
                names.sort_unstable();
                names.join(" ")
            };
            let names = |lines: Vec<&str>| {
                let names = lines
                    .iter()
                    .filter_map(|line| line.split_whitespace().next());
                let mut names: Vec<_> = names.collect();
                names.sort_unstable();
                names.join(" ")
            };
            assert_eq!(names(is), sorted(always), "{operator}: {list}");
            assert_eq!(names(may_be), sorted(optional), "{operator}: {list}");
        }
    }
}

#[test]
fn usage_errors_exit_with_2() {
    let operator = ["batch-norm-backward", "in", "-o", "out"];
    let with = |more: &[&'static str]| [&operator, more].concat();
    let cases = [
        vec![],
        vec!["unknown"],
        vec!["adapters", "--unknown"],
        vec!["adapters", "--backend", "glide"],
        vec!["batch-norm-backward", "in"],
        vec!["batch-norm-backward", "-o", "out"],
        with(&["--epsilon", "small"]),
        with(&["--epsilon"]),
        with(&["--data-format", "NHWC"]),
        with(&["--statistics", "running"]),
        with(&["--param-grads", "some"]),
        vec![BATCH_NORM, "in", "-o", "-"],
        vec![BATCH_NORM, "-", "-o", "out"],
        vec!["bench", "--json", "-"],
        vec!["bench", "--from-json", "-"],
    ];
    for arguments in cases {
        let result = run(&arguments);
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stdout(&result), "", "{arguments:?}");
        assert!(!result.stderr.is_empty());
    }
    for arguments in [
        vec!["--help"],
        vec!["--version"],
        vec!["batch-norm-backward", "--help"],
    ] {
        let result = run(&arguments);
        assert_success(&result);
        assert!(!result.stdout.is_empty());
    }
}
