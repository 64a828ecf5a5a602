//! `wgpu-norm-mpi` under `mpirun`: the file is that of one process, except for rounding.

use crate::runner::{Ended, Expected, finish, mpirun};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::Path;
use wgpu_norm_verify::Random;

type Case = fn() -> Result<(), String>;

/// Names and shapes of tensors.
type Shapes<'a> = [(&'a str, &'a [usize])];

/// Cases by name.
pub const CASES: &[(&str, Case)] = &[
    (
        "files_are_those_of_one_process",
        files_are_those_of_one_process,
    ),
    (
        "what_ranks_cannot_share_is_refused",
        what_ranks_cannot_share_is_refused,
    ),
    (
        "a_killed_rank_leaves_no_output",
        a_killed_rank_leaves_no_output,
    ),
    (
        "a_hanging_rank_leaves_no_output",
        a_hanging_rank_leaves_no_output,
    ),
    ("different_work_is_refused", different_work_is_refused),
    ("gradients_are_rounded_once", gradients_are_rounded_once),
];

const PROGRAM: &str = env!("CARGO_BIN_EXE_wgpu-norm-mpi");
const SAMPLES: usize = 13;
const CHANNELS: usize = 6;
const INNER: usize = 20;

/// Tensors by name: shape, and values of f32.
type Tensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

fn tensors(of: &Shapes<'_>) -> Tensors {
    let mut random = Random::new(4);
    of.iter()
        .map(|&(name, shape)| {
            let mut values: Vec<f32> = random.vec(shape.iter().product(), 1.0, 0.3);
            if name.contains("variance") || name == "mean_square" {
                values
                    .iter_mut()
                    .for_each(|value| *value = 0.5 + value.abs());
            }
            (name.to_owned(), (shape.to_vec(), values))
        })
        .collect()
}

fn write(path: &Path, tensors: &Tensors) {
    let bytes: Vec<_> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            (name, shape, bytes)
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (
            name.as_str(),
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// Floats as stored, and words of a mask.
fn read(path: &Path) -> HashMap<String, (Dtype, Vec<usize>, Vec<u32>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter();
    tensors
        .map(|(name, view)| {
            let words = view.data().chunks_exact(4);
            let words = words.map(|word| u32::from_le_bytes(word.try_into().unwrap()));
            (name, (view.dtype(), view.shape().to_vec(), words.collect()))
        })
        .collect()
}

fn run(ranks: usize, arguments: &[&str], input: &Path, output: &Path) -> Ended {
    let mut command = mpirun(ranks);
    command
        .arg(PROGRAM)
        .args(arguments)
        .arg(input)
        .arg("-o")
        .arg(output);
    finish(&mut command)
}

fn compare(one: &Path, many: &Path) -> Result<(), String> {
    let (one, many) = (read(one), read(many));
    if one.len() != many.len() {
        return Err(format!("{:?} and {:?}", one.keys(), many.keys()));
    }
    for (name, (dtype, shape, want)) in &one {
        let (got_dtype, got_shape, got) = many.get(name).ok_or_else(|| format!("no {name}"))?;
        if (dtype, shape) != (got_dtype, got_shape) {
            return Err(format!(
                "{name}: {got_dtype} {got_shape:?} for {dtype} {shape:?}"
            ));
        }
        if *dtype == Dtype::U32 {
            if want != got {
                return Err(format!("{name}: other bits"));
            }
            continue;
        }
        let floats = |words: &[u32]| {
            words
                .iter()
                .map(|&word| f32::from_bits(word))
                .collect::<Vec<_>>()
        };
        let (want, got) = (floats(want), floats(got));
        let largest = want
            .iter()
            .fold(1.0_f32, |most, value| most.max(value.abs()));
        for (index, (want, got)) in want.iter().zip(&got).enumerate() {
            if (want - got).abs() > 1e-5 * largest || got.is_nan() {
                return Err(format!("{name} {index}: {got} for {want}"));
            }
        }
    }
    Ok(())
}

fn files_are_those_of_one_process() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, one, many] = ["in", "one", "many"].map(|name| folder.path().join(name));
    let ncx = [SAMPLES, CHANNELS, INNER];
    let nxc = [SAMPLES, INNER, CHANNELS];
    let of_channels = [CHANNELS];
    let batch = |shape| {
        [
            ("src", shape),
            ("diff_dst", shape),
            ("mean", &of_channels[..]),
            ("variance", &of_channels),
            ("gamma", &of_channels),
            ("running_mean", &of_channels),
            ("running_variance", &of_channels),
        ]
    };
    let with_residual = [
        ("src", &ncx[..]),
        ("residual", &ncx),
        ("gamma", &of_channels),
    ];
    let rows = [SAMPLES, CHANNELS];
    let of_rows = [
        ("src", &ncx[..]),
        ("diff_dst", &ncx),
        ("mean", &rows),
        ("variance", &rows),
        ("mean_square", &rows),
        ("gamma", &[INNER]),
        ("beta", &[INNER]),
    ];
    let groups = [SAMPLES, 2];
    let of_groups = [
        ("src", &ncx[..]),
        ("diff_dst", &ncx),
        ("mean", &groups),
        ("variance", &groups),
        ("gamma", &of_channels),
    ];
    let batch_ncx = batch(&ncx[..]);
    let batch_nxc = batch(&nxc[..]);
    let cases: [(&str, &Shapes<'_>); 12] = [
        (
            "batch-norm-backward --data-format NCX --epsilon 1e-3",
            &batch_ncx,
        ),
        (
            "batch-norm-backward --data-format NXC --epsilon 1e-3",
            &batch_nxc,
        ),
        (
            "batch-norm-forward --data-format NCX --epsilon 1e-3 --running-weight 0.2 --running-variance unbiased",
            &batch_ncx,
        ),
        (
            "batch-norm-forward --data-format NCX --epsilon 1e-3 --activation relu",
            &with_residual,
        ),
        (
            "batch-norm-inference --data-format NXC --epsilon 1e-3",
            &batch_nxc,
        ),
        ("layer-norm-backward --begin-norm-axis -1", &of_rows),
        ("layer-norm-forward --begin-norm-axis -1", &of_rows),
        ("rms-norm-backward --begin-norm-axis -1", &of_rows),
        ("rms-norm-forward --begin-norm-axis -1", &of_rows),
        (
            "group-norm-backward --groups 2 --data-format NCX",
            &of_groups,
        ),
        (
            "group-norm-forward --groups 2 --data-format NCX",
            &of_groups,
        ),
        (
            "group-norm-inference --groups 2 --data-format NCX",
            &of_groups,
        ),
    ];
    for (index, (arguments, of)) in cases.into_iter().enumerate() {
        write(&input, &tensors(of));
        let arguments: Vec<&str> = arguments.split(' ').collect();
        run(1, &arguments, &input, &one).check(&Expected::Success)?;
        // All numbers of ranks for the first ones, then one after another.
        let numbers = [2, 3, 5];
        let numbers = match index {
            0 | 2 | 3 => &numbers[..],
            _ => &numbers[index % 3..index % 3 + 1],
        };
        for &ranks in numbers {
            let ended = run(ranks, &arguments, &input, &many);
            ended.check(&Expected::Success)?;
            let lines: Vec<&str> = ended.stdout.lines().collect();
            let said = format!(", by {ranks} ranks, on ");
            if lines.len() != 1 || !lines[0].contains(&said) {
                return Err(format!("{arguments:?}: not one line of rank 0: {lines:?}"));
            }
            compare(&one, &many).map_err(|why| format!("{arguments:?} on {ranks}: {why}"))?;
        }
    }
    Ok(())
}

fn what_ranks_cannot_share_is_refused() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    let shape = [SAMPLES, CHANNELS];
    write(
        &input,
        &tensors(&[
            ("src", &shape),
            ("gamma", &[CHANNELS]),
            ("beta", &[CHANNELS]),
        ]),
    );
    let missing = folder.path().join("missing");
    for (arguments, input, said) in [
        (
            "batch-norm-forward --epsilon 1 --check",
            &input,
            "--check: expected none",
        ),
        (
            "batch-norm-forward --epsilon 1 --memory-budget 1GB",
            &input,
            "--memory-budget: expected none",
        ),
        ("batch-norm-forward --epsilon 0", &input, "epsilon"),
        (
            "layer-norm-forward --begin-norm-axis 0",
            &input,
            "begin_norm_axis",
        ),
        (
            "batch-norm-forward --epsilon 1",
            &missing,
            "missing: cannot be read",
        ),
        ("batch-norm-backward --epsilon 1", &input, "diff_dst"),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let ended = run(3, &arguments, input, &output);
        ended.check(&Expected::Failure("error: "))?;
        let errors: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        if errors.len() != 1 || !errors[0].contains(said) {
            return Err(format!(
                "{arguments:?}: not one error with '{said}': {}",
                ended.stderr
            ));
        }
    }
    leaves(folder.path(), &["in"])
}

/// A rank ends while the others compute: the job fails, and no file appears.
fn a_killed_rank_leaves_no_output() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output, script] = ["in", "out", "script"].map(|name| folder.path().join(name));
    let shape = [256, 64, 32, 32];
    write(&input, &tensors(&[("src", &shape)]));
    // The last rank is a program that ends before it has sent anything.
    std::fs::write(&script, "sleep 2\nkill -9 $$\n").unwrap();
    let mut command = mpirun(2);
    command
        .arg(PROGRAM)
        .args(["batch-norm-forward", "--epsilon", "1"]);
    command.arg(&input).arg("-o").arg(&output);
    command.args([":", "-n", "1", "sh"]).arg(&script);
    finish(&mut command).check(&Expected::Failure(""))?;
    leaves(folder.path(), &["in", "script"])
}

/// A rank hangs for longer than the others wait, while they write.
fn a_hanging_rank_leaves_no_output() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output, script] = ["in", "out", "script"].map(|name| folder.path().join(name));
    write(&input, &tensors(&[("src", &[256, 64, 32, 32])]));
    // Waits until rank 0 has created the file, which both ranks then write for a while.
    let wait = format!(
        "until ls {}/.wgpu-norm-* 2>/dev/null; do :; done",
        folder.path().display()
    );
    std::fs::write(
        &script,
        format!("\"$@\" & {wait}; kill -STOP $!; sleep 100\n"),
    )
    .unwrap();
    let arguments = ["batch-norm-forward", "--epsilon", "1"];
    let mut command = mpirun(1);
    command.env("WGPU_NORM_MPI_TIMEOUT", "3");
    command
        .arg(PROGRAM)
        .args(arguments)
        .arg(&input)
        .arg("-o")
        .arg(&output);
    command.args([":", "-n", "1", "sh"]).arg(&script);
    command
        .arg(PROGRAM)
        .args(arguments)
        .arg(&input)
        .arg("-o")
        .arg(&output);
    finish(&mut command).check(&Expected::Failure(""))?;
    leaves(folder.path(), &["in", "script"])
}

/// Ranks that were given different work are refused.
fn different_work_is_refused() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    write(&input, &tensors(&[("src", &[SAMPLES, CHANNELS])]));
    for (other, said) in [
        (
            &["rms-norm-forward", "--epsilon", "2"][..],
            "expected the same work on all",
        ),
        (
            &["rms-norm-forward", "--nonsense"],
            "rank 1: error: unexpected argument",
        ),
    ] {
        let mut command = mpirun(1);
        command
            .arg(PROGRAM)
            .args(["rms-norm-forward", "--epsilon", "1"]);
        command.arg(&input).arg("-o").arg(&output);
        command.args([":", "-n", "1"]).arg(PROGRAM).args(other);
        command.arg(&input).arg("-o").arg(&output);
        finish(&mut command).check(&Expected::Failure(said))?;
    }
    leaves(folder.path(), &["in"])
}

/// Parameter gradients of f16 that are beyond its range on each rank, but whose sum is within it.
fn gradients_are_rounded_once() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    let half = |value: f32| wgpu_norm::half::f16::from_f32(value).to_le_bytes();
    let bytes = |values: &[f32]| {
        values
            .iter()
            .flat_map(|&value| half(value))
            .collect::<Vec<u8>>()
    };
    // Two rows of one sample each: x̂ is -1 and 1, diff_beta the sum of diff_dst.
    let rows = 4096;
    let src: Vec<f32> = (0..rows).flat_map(|_| [-1.0, 1.0]).collect();
    let diff = |row: usize| if row < rows / 2 { 40.0 } else { -39.5 };
    let diff_dst: Vec<f32> = (0..rows).flat_map(|row| [diff(row); 2]).collect();
    let ones = vec![1.0; rows];
    let zeros = vec![0.0; rows];
    let tensors = [
        ("src", vec![rows, 2], bytes(&src)),
        ("diff_dst", vec![rows, 2], bytes(&diff_dst)),
        ("mean", vec![rows], bytes(&zeros)),
        ("variance", vec![rows], bytes(&ones)),
        ("gamma", vec![2], bytes(&[1.0; 2])),
        ("beta", vec![2], bytes(&[0.0; 2])),
    ];
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (
            *name,
            TensorView::new(Dtype::F16, shape.clone(), bytes).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, &input).unwrap();
    run(2, &["layer-norm-backward"], &input, &output).check(&Expected::Success)?;
    let bytes = std::fs::read(&output).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let diff_beta = file.tensor("diff_beta").unwrap();
    match diff_beta.data() == [half(1024.0); 2].concat() {
        true => Ok(()),
        false => Err(format!("diff_beta {:?}", diff_beta.data())),
    }
}

fn leaves(folder: &Path, want: &[&str]) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    match names == want {
        true => Ok(()),
        false => Err(format!("files are left: {names:?}")),
    }
}
