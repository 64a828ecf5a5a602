//! Counts what plans cost, without a GPU, over a grid of shapes, and draws what a model of a large GPU makes of it.
//!
//! `WGPU_NORM_COUNTS=FOLDER cargo test --lib plans_are_counted` writes `FOLDER/counts.tsv`, a line for each operator,
//! pass, type and shape, and `FOLDER/counts.svg`.
//!
//! The model, of an NVIDIA H200: 7.8 µs, and 4.3 µs for each dispatch after the first. A dispatch moves its bytes at
//! 4,200 GB/s, or as many at a time as its invocations have loads under way, each 0.8 µs long; and an iteration of a
//! loop takes 10 ns. A tensor that has been read is read again from a cache of 40 MB at 6,000 GB/s. The limit is each
//! tensor read and written once, in one dispatch.

use super::is_set;
use crate::element::DType;
use crate::kernels::{Constant, Kernel};
use crate::operation::{Backward, Forward, Norm, Operation, Pass};
use crate::options::DataFormat;
use crate::plan::{Dispatch, Plan};
use crate::profile::Profile;
use crate::tensor::Tensor;
use crate::tuning::Tuning;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Bytes in a nanosecond: of memory, and of a cache.
const MEMORY: f64 = 4200.0;
const CACHE: f64 = 6000.0;
const CACHE_BYTES: f64 = 40e6;

/// Nanoseconds: of the first dispatch, of each other one, of a load, of an iteration.
const FIRST: f64 = 7800.0;
const FURTHER: f64 = 4300.0;
const LOAD: f64 = 800.0;
const ITERATION: f64 = 10.0;

/// Invocations that are resident, with some 64 registers each.
const RESIDENT: f64 = 132.0 * 1024.0;

/// The limits of a desktop GPU.
fn desktop() -> Profile {
    Profile {
        max_binding: (1 << 31) - 4,
        max_buffer: 1 << 40,
        alignment: 32,
        max_invocations: 1024,
        max_storage_buffers: 8,
        max_workgroup_storage: 49152,
        subgroup_size: 32,
        tuning: Tuning::GPU,
        ..Profile::webgpu("desktop")
    }
}

/// The value of a dispatch's constant, if it is a size.
fn size(dispatch: &Dispatch, name: &str) -> f64 {
    let mut sizes = dispatch.constants.iter();
    let found = sizes.find_map(|constant| match *constant {
        (own, Constant::Size(size)) if own == name => Some(size),
        _ => None,
    });
    f64::from(found.unwrap_or(1))
}

fn is(dispatch: &Dispatch, name: &str) -> bool {
    dispatch.constants.contains(&(name, Constant::Flag(true)))
}

/// Whether a dispatch reads its tensors twice.
fn reads_twice(dispatch: &Dispatch) -> bool {
    match dispatch.kernel {
        Kernel::ChannelsFirstFused => true,
        Kernel::ColumnsWalk => is(dispatch, "reduced") && is(dispatch, "applied"),
        _ => false,
    }
}

/// Loads that an invocation has under way of each tensor, in bytes.
fn under_way(dispatch: &Dispatch, dtype: DType) -> f64 {
    let vectors = match dispatch.kernel {
        Kernel::ChannelsFirstReduce | Kernel::ChannelsFirstFused => size(dispatch, "block_vectors"),
        Kernel::ColumnsWalk => size(dispatch, "rows_at_once") * size(dispatch, "column_vectors"),
        Kernel::InRegisters => size(dispatch, "held_rows") * size(dispatch, "column_vectors"),
        _ => 1.0,
    };
    vectors * size(dispatch, "vector_vec4s") * 4.0 * dtype.size() as f64
}

struct Counted {
    dispatches: usize,
    /// Readings and writings of src's bytes.
    readings: f64,
    /// The most that a dispatch's loads under way keep it below the memory's bandwidth.
    starved: f64,
    fraction: f64,
}

fn count(plan: &Plan, elements: f64, dtype: DType) -> Counted {
    let src = elements * dtype.size() as f64;
    let (mut time, mut moved, mut starved) = (FIRST, 0.0, 1.0f64);
    let mut seen = BTreeSet::new();
    let mut least = 0.0;
    let all: Vec<_> = plan.whole().collect();
    for (index, dispatch) in all.iter().enumerate() {
        let data = dispatch
            .bindings
            .iter()
            .filter(|bound| bound.tensor.is_data());
        let (mut memory, mut cached, mut tensors) = (0.0, 0.0, 0.0);
        for bound in data {
            let bytes = (bound.bytes.end - bound.bytes.start) as f64;
            let is_read = dispatch.body.inputs().contains(&bound.tensor);
            tensors += f64::from(u8::from(is_read));
            let again = u8::from(is_read && reads_twice(dispatch));
            if seen.insert((bound.tensor.name(), bound.bytes.start)) {
                memory += bytes;
                least += bytes;
            } else {
                cached += bytes;
            }
            cached += f64::from(again) * bytes;
        }
        let in_cache = 2.0 * src <= CACHE_BYTES || reads_twice(dispatch);
        let again = if in_cache { CACHE } else { MEMORY };
        let groups = f64::from(dispatch.workgroups[0]) * f64::from(dispatch.workgroups[1]);
        let invocations = groups * f64::from(dispatch.workgroup_size);
        let flying =
            invocations.min(RESIDENT) * under_way(dispatch, dtype) * f64::max(tensors, 1.0);
        let slowdown = (MEMORY / (flying / LOAD)).max(1.0);
        let waves = (invocations / RESIDENT).ceil().max(1.0);
        let walked = waves * dispatch.iterations as f64 * ITERATION;
        let bytes_time = slowdown * (memory / MEMORY + cached / again);
        if memory + cached > 0.0 {
            starved = starved.max(slowdown);
        }
        time += f64::from(u8::from(index > 0)) * FURTHER + bytes_time.max(walked);
        moved += memory + cached;
    }
    Counted {
        dispatches: all.len(),
        readings: moved / src,
        starved,
        fraction: (FIRST + least / MEMORY) / time,
    }
}

/// The layers of the grid: an operator's name, its norm and its shapes.
fn layers() -> Vec<(&'static str, Norm, Vec<usize>)> {
    let mut layers = Vec::new();
    let mut add = |name, norm: &Norm, shape: &[usize]| {
        let elements: usize = shape.iter().product();
        if (1 << 14..=1 << 29).contains(&elements) {
            layers.push((name, norm.clone(), shape.to_vec()));
        }
    };
    let samples = [1, 8, 64, 512, 4096, 65536];
    for n in samples {
        for c in [1, 3, 16, 64, 96, 256, 768, 2048, 4096] {
            for x in [1, 49, 196, 784, 1225, 3136, 147 * 147, 512 * 512] {
                use DataFormat::{Ncx, Nxc};
                let (first, last) = ([n, c, x], [n, x, c]);
                add("batch norm NCX", &Norm::batch(Ncx), &first);
                add("batch norm NXC", &Norm::batch(Nxc), &last);
                if x > 1 {
                    add("instance norm NCX", &Norm::Instance { format: Ncx }, &first);
                    add("instance norm NXC", &Norm::Instance { format: Nxc }, &last);
                    add("layer norm over channels", &Norm::axes(&[1], &[1]), &first);
                }
                if x > 1 && c % 32 == 0 {
                    let groups = 32;
                    add(
                        "group norm NCX",
                        &Norm::Group {
                            groups,
                            format: Ncx,
                        },
                        &first,
                    );
                    add(
                        "group norm NXC",
                        &Norm::Group {
                            groups,
                            format: Nxc,
                        },
                        &last,
                    );
                }
            }
        }
        for columns in [1, 64, 77, 768, 1152, 3072, 4096, 8192, 16384, 50257, 65536] {
            let begin_norm_axis = -1;
            add(
                "layer norm",
                &Norm::Layer { begin_norm_axis },
                &[n, columns],
            );
            add("RMS norm", &Norm::Rms { begin_norm_axis }, &[n, columns]);
            let adaptive = Norm::axes(&[2], &[0, 2]);
            add(
                "adaptive layer norm",
                &adaptive,
                &[n.div_ceil(64), n.min(64), columns],
            );
        }
    }
    layers
}

#[test]
fn plans_are_counted() {
    if !is_set("WGPU_NORM_COUNTS") {
        return;
    }
    let folder = std::env::var("WGPU_NORM_COUNTS").unwrap();
    let profile = desktop();
    let mut lines = Vec::new();
    // By operator and pass, points of size and fraction.
    let mut points: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, norm, shape) in layers() {
        let passes: [(&str, Pass); 3] = [
            ("gradient", Backward::default().into()),
            ("forward", Forward::default().into()),
            ("inference", Pass::Inference),
        ];
        for ((pass_name, pass), dtype) in passes
            .iter()
            .flat_map(|pass| [DType::F32, DType::F16].map(|dtype| (pass, dtype)))
        {
            let beta = !matches!(norm, Norm::Rms { .. });
            let operation =
                Operation::new(norm.clone(), *pass, &shape, dtype).with_params(true, beta);
            let Ok(plan) = operation.planned(&profile) else {
                continue;
            };
            let elements = shape.iter().product::<usize>() as f64;
            let counted = count(&plan, elements, dtype);
            let mut kernels = String::new();
            for dispatch in plan.whole() {
                let groups = u64::from(dispatch.workgroups[0]) * u64::from(dispatch.workgroups[1]);
                let name = dispatch.kernel.entry().name();
                let _ = write!(kernels, " {name}:{groups}x{}", dispatch.workgroup_size);
            }
            lines.push((
                counted.fraction,
                format!(
                    "{:.2}\t{name}\t{pass_name}\t{dtype}\t{shape:?}\t{}\t{:.1}n\t{:.1}\t{}\t{}",
                    counted.fraction,
                    counted.dispatches,
                    counted.readings,
                    counted.starved,
                    plan.algorithm,
                    kernels.trim()
                ),
            ));
            if dtype == DType::F32 {
                let size = elements * dtype.size() as f64;
                let own = points.entry(format!("{name}, {pass_name}")).or_default();
                own.push((size, counted.fraction));
            }
            assert!(plan.requirement(Tensor::Src).is_some());
        }
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let head =
        "fraction\toperator\tpass\ttype\tshape\tdispatches\tbytes\tstarved\talgorithm\tkernels\n";
    let lines = lines.iter().map(|(_, line)| format!("{line}\n"));
    let text: String = [head.to_owned()].into_iter().chain(lines).collect();
    std::fs::write(format!("{folder}/counts.tsv"), text).unwrap();
    std::fs::write(format!("{folder}/counts.svg"), picture(&points)).unwrap();
}

/// A panel for each operator and pass: the fraction over the size of src.
fn picture(points: &BTreeMap<String, Vec<(f64, f64)>>) -> String {
    const COLUMNS: usize = 6;
    let (width, height) = (150.0, 110.0);
    let rows = points.len().div_ceil(COLUMNS);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"9\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        COLUMNS as f64 * width,
        rows as f64 * height
    );
    for (index, (name, own)) in points.iter().enumerate() {
        let (left, top) = (
            (index % COLUMNS) as f64 * width + 22.0,
            (index / COLUMNS) as f64 * height + 16.0,
        );
        let (inner_width, inner_height) = (width - 32.0, height - 36.0);
        let x = |size: f64| left + (size.log10() - 4.8) / 4.6 * inner_width;
        let y = |fraction: f64| top + (1.0 - fraction) * inner_height;
        let _ = writeln!(
            text,
            "<text x=\"{left:.0}\" y=\"{:.0}\">{name}</text>",
            top - 4.0
        );
        for fraction in [0.0, 0.5, 1.0] {
            let (at, end) = (y(fraction), left + inner_width);
            let _ = writeln!(
                text,
                "<line x1=\"{left:.0}\" x2=\"{end:.0}\" y1=\"{at:.0}\" y2=\"{at:.0}\" stroke=\"#ccc\"/>\
                 <text x=\"{:.0}\" y=\"{:.0}\" fill=\"#666\">{fraction}</text>",
                left - 18.0,
                at + 3.0
            );
        }
        for (size, label) in [(1e5, "100 KB"), (1e7, "10 MB"), (1e9, "1 GB")] {
            let _ = writeln!(
                text,
                "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"#666\" text-anchor=\"middle\">{label}</text>",
                x(size),
                top + inner_height + 12.0
            );
        }
        let points = own
            .iter()
            .map(|(size, fraction)| format!("M{:.0} {:.0}h0", x(*size), y(*fraction)));
        let _ = writeln!(
            text,
            "<path d=\"{}\" stroke=\"#06c\" stroke-opacity=\"0.5\" stroke-width=\"2.5\" stroke-linecap=\"round\"/>",
            points.collect::<String>()
        );
    }
    text + "</svg>\n"
}
