//! Plan, bind, record: the caller's device, buffers and encoder.

use crate::common::buffers::{Buffers, Room, first, plan, range};
use crate::common::data::{Case, FORMATS, all_choices, assert_close, bits, in_format, options_in};
use crate::common::{Noop, OwnDevices, Subject, every_pair, takes};
use wgpu_norm::{
    Algorithm, BatchNormBackwardBuffers, BatchNormBackwardPlan, BatchNormOptions, Bound, DType,
    DTypes, DataFormat, Element, Error, GpuLayerNorm, Grads, LayerNormOptions, ParamGrads, ParamOf,
    Statistics, Tuning,
};

/// Odd and even totals, channels first and last, a channel's end within four elements and at their end, and data in
/// whole groups of four with parameters that are not.
const SHAPES: &[&[usize]] = &[
    &[4, 3, 8],
    &[3, 5, 7],
    &[1, 1, 1],
    &[2, 3, 35],
    &[5, 7, 41],
    &[2, 8, 64],
    &[4, 6, 20], // every other plane begins in the middle of eight elements
    &[61, 3],
    &[1, 13, 513],
];

fn submit(subject: &Subject, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
    let descriptor = wgpu::CommandEncoderDescriptor::default();
    let mut encoder = subject.gpu.device().create_command_encoder(&descriptor);
    record(&mut encoder);
    subject.gpu.queue().submit([encoder.finish()]);
}

fn bind(
    subject: &Subject,
    plan: &BatchNormBackwardPlan,
    ranges: &BatchNormBackwardBuffers<'_>,
) -> Bound {
    plan.bind(&subject.gpu, ranges)
        .unwrap_or_else(|error| panic!("{}: {error}", subject.name))
}

/// Every choice that changes which tensors are bound.
fn options_of(data_format: DataFormat) -> [BatchNormOptions; 3] {
    let with = |statistics, param_grads| BatchNormOptions {
        statistics,
        param_grads,
        ..options_in(data_format)
    };
    [
        with(Through::Batch, ParamGrads::Both),
        with(Through::Batch, ParamGrads::Neither),
        with(Through::Constant, ParamGrads::Frozen),
    ]
}

fn every_case<T: Element, P: ParamOf<T>>(mut test: impl FnMut(usize, &Case<T, P>, &str)) {
    for (seed, shape) in SHAPES.iter().enumerate() {
        for data_format in FORMATS {
            for (choice, options) in options_of(data_format).into_iter().enumerate() {
                let shape = in_format(shape, data_format);
                let mut case = Case::<T, P>::random(&shape, options, seed as u64);
                if seed % 2 == 1 {
                    case.gamma = None;
                }
                let what = format!("{shape:?} {options:?} {}/{}", T::DTYPE, P::DTYPE);
                test(seed + choice, &case, &what);
            }
        }
    }
}

/// Those of them that the types take.
fn cases_taken<T: Element, P: ParamOf<T>>(mut test: impl FnMut(&Case<T, P>, &str)) {
    every_case::<T, P>(|combination, case, what| {
        if takes::<T, P>(combination) {
            test(case, what);
        }
    });
}

/// Buffers with and without room behind the tensor give the bits of the host path.
fn exact_and_padded_buffers<T: Element, P: ParamOf<T>>() {
    let devices = OwnDevices::new();
    for subject in devices.subjects.iter().filter(|s| s.takes::<T>()) {
        cases_taken::<T, P>(|case, what| {
            let want = bits(&case.run(subject).unwrap());
            for room in [Room::Exact, Room::Padded] {
                let buffers = Buffers::new(subject, case, room);
                let bound = bind(subject, &plan(subject, case), &buffers.ranges());
                submit(subject, |encoder| bound.record(encoder));
                let got = bits(&buffers.results(subject, case));
                assert!(got == want, "{what} {room:?} on {}", subject.name);
            }
        });
    }
}

every_pair!(exact_and_padded_buffers: f32 f32 f32, bf16_f32 bf16 f32);

/// Buffers of exactly the sizes that a plan tells, for batch norm and for layer norm.
fn sizes_of_buffers<T: Element, P: ParamOf<T>>() {
    let noop = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    let subject = &noop.subject;
    let (data, params) = (T::DTYPE.size(), P::DTYPE.size());
    let tight = |elements: u64, size: u64| (elements * size).next_multiple_of(4);
    let padded = |elements: u64, size: u64| elements.next_multiple_of(4) * size;
    every_case::<T, P>(|_, case, what| {
        let plan = plan(subject, case);
        let (n, channels) = (case.src.len() as u64, case.mean.len() as u64);
        let both = case.options.param_grads == ParamGrads::Both;
        for (sizes, of) in [
            (plan.sizes(), &tight as &dyn Fn(u64, u64) -> u64),
            (plan.padded_sizes(), &padded),
        ] {
            let params = of(channels, params);
            assert_eq!(sizes.src, of(n, data), "{what}");
            assert_eq!(sizes.diff_dst, sizes.src, "{what}");
            assert_eq!(sizes.diff_src, sizes.src, "{what}");
            assert_eq!([sizes.mean, sizes.variance], [params; 2], "{what}");
            assert_eq!(sizes.gamma, case.gamma.as_ref().map(|_| params), "{what}");
            assert_eq!(sizes.diff_gamma, both.then_some(params), "{what}");
            assert_eq!(sizes.diff_beta, both.then_some(params), "{what}");
            assert_eq!(sizes.sums, plan.sums_size(), "{what}");
            assert_eq!(sizes.workspace, plan.workspace_size(), "{what}");
            let buffer = |size| subject.buffer(size, &[]);
            let optional = |size: Option<u64>| size.map(buffer);
            let [src, diff_dst, diff_src] = [sizes.src; 3].map(buffer);
            let [mean, variance] = [sizes.mean; 2].map(buffer);
            let gamma = optional(sizes.gamma);
            let (diff_gamma, diff_beta) = (optional(sizes.diff_gamma), optional(sizes.diff_beta));
            let (sums, workspace) = (buffer(sizes.sums), buffer(sizes.workspace));
            let ranges = BatchNormBackwardBuffers {
                src: (&src).into(),
                diff_dst: (&diff_dst).into(),
                mean: (&mean).into(),
                variance: (&variance).into(),
                gamma: gamma.as_ref().map(Into::into),
                diff_src: (&diff_src).into(),
                diff_gamma: diff_gamma.as_ref().map(Into::into),
                diff_beta: diff_beta.as_ref().map(Into::into),
                sums: Some((&sums).into()),
                workspace: Some((&workspace).into()),
                beta: None,
                mask: None,
                diff_residual: None,
            };
            let _ = bind(subject, &plan, &ranges);
        }
    });
    for (use_affine, rows, columns) in [(true, 5, 7), (false, 3, 8), (true, 1, 1001)] {
        let options = LayerNormOptions {
            use_affine,
            ..LayerNormOptions::default()
        };
        let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
        let shape = [rows as usize, columns as usize];
        let plan = layer
            .plan_backward(
                &shape,
                DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(P::DTYPE),
            )
            .unwrap();
        for (sizes, of) in [
            (plan.sizes(), &tight as &dyn Fn(u64, u64) -> u64),
            (plan.padded_sizes(), &padded),
        ] {
            let what = format!("{shape:?} on {}", subject.name);
            let n = of(rows * columns, data);
            assert_eq!(
                [sizes.src, sizes.diff_dst, sizes.diff_src],
                [n; 3],
                "{what}"
            );
            assert_eq!(
                [sizes.mean, sizes.variance],
                [of(rows, params); 2],
                "{what}"
            );
            let affine = use_affine.then_some(of(columns, params));
            let affine_sizes = [sizes.gamma, sizes.diff_gamma, sizes.diff_beta];
            assert_eq!(affine_sizes, [affine; 3], "{what}");
            assert_eq!(sizes.workspace, plan.workspace_size(), "{what}");
        }
    }
}

every_pair!(sizes_of_buffers);

/// Where each tensor is in the pool.
struct Layout {
    ranges: Vec<(&'static str, u64, u64)>,
    end: u64,
}

impl Layout {
    fn of<T: Element, P: ParamOf<T>>(subject: &Subject, case: &Case<T, P>, in_place: bool) -> Self {
        let plan = plan(subject, case);
        let data = case.src.len() as u64 * T::DTYPE.size();
        let params = case.mean.len() as u64 * P::DTYPE.size();
        let both = case.options.param_grads == ParamGrads::Both;
        let mut layout = Self {
            ranges: Vec::new(),
            end: 512,
        };
        let alignment = subject.gpu.profile().alignment;
        let mut add = |name, bytes: u64| {
            let size = bytes.next_multiple_of(4);
            layout.ranges.push((name, layout.end, size));
            layout.end = (layout.end + size).next_multiple_of(alignment);
        };
        add("src", data);
        add("diff_gamma", if both { params } else { 0 });
        add("diff_dst", data);
        add("mean", params);
        add("sums", plan.sums_size());
        add("variance", params);
        if !in_place {
            add("diff_src", data);
        }
        add("gamma", if case.gamma.is_some() { params } else { 0 });
        add("workspace", plan.workspace_size());
        add("diff_beta", if both { params } else { 0 });
        layout
    }

    fn place(&self, name: &str) -> (u64, u64) {
        let place = self.ranges.iter().find(|(n, _, _)| *n == name);
        let or_in_place = || self.ranges.iter().find(|(n, _, _)| *n == "diff_dst");
        place
            .or_else(or_in_place)
            .map(|&(_, offset, size)| (offset, size))
            .unwrap()
    }

    fn buffers<'a>(&self, pool: &'a wgpu::Buffer) -> BatchNormBackwardBuffers<'a> {
        let at = |name| {
            let (offset, size) = self.place(name);
            range(pool, offset, size)
        };
        let given = |name| Some(at(name)).filter(|range| range.size != Some(0));
        BatchNormBackwardBuffers {
            src: at("src"),
            diff_dst: at("diff_dst"),
            mean: at("mean"),
            variance: at("variance"),
            gamma: given("gamma"),
            diff_src: at("diff_src"),
            diff_gamma: given("diff_gamma"),
            diff_beta: given("diff_beta"),
            sums: given("sums"),
            workspace: given("workspace"),
            beta: None,
            mask: None,
            diff_residual: None,
        }
    }
}

/// One buffer for everything, in a caller's order and alignment, nothing but the tensors written.
fn one_pooled_buffer<T: Element, P: ParamOf<T>>() {
    let devices = OwnDevices::new();
    for subject in devices.subjects.iter().filter(|s| s.takes::<T>()) {
        cases_taken::<T, P>(|case, what| {
            let want = bits(&case.run(subject).unwrap());
            for in_place in [false, true] {
                let what = format!("{what} in place: {in_place} on {}", subject.name);
                let layout = Layout::of(subject, case, in_place);
                let got = run_pooled(subject, case, &layout, &what);
                assert!(bits(&got) == want, "{what}");
            }
        });
    }
}

every_pair!(one_pooled_buffer: f32 f32 f32, f16 f16 f16);

fn run_pooled<T: Element, P: ParamOf<T>>(
    subject: &Subject,
    case: &Case<T, P>,
    layout: &Layout,
    what: &str,
) -> Grads<T, P> {
    // What calculates with 0x3e changes it, and NaN shows in results: nothing of either is to be touched.
    run_filled(subject, case, layout, 0x3e, what);
    run_filled(subject, case, layout, 0xff, what)
}

fn run_filled<T: Element, P: ParamOf<T>>(
    subject: &Subject,
    case: &Case<T, P>,
    layout: &Layout,
    filler: u8,
    what: &str,
) -> Grads<T, P> {
    let mut before = vec![filler; layout.end as usize];
    let mut put = |name: &str, bytes: &[u8]| {
        let start = layout.place(name).0 as usize;
        before[start..start + bytes.len()].copy_from_slice(bytes);
    };
    put("src", bytemuck::cast_slice(&case.src));
    put("diff_dst", bytemuck::cast_slice(&case.diff_dst));
    put("mean", bytemuck::cast_slice(&case.mean));
    put("variance", bytemuck::cast_slice(&case.variance));
    if let Some(gamma) = &case.gamma {
        put("gamma", bytemuck::cast_slice(gamma));
    }
    let pool = subject.buffer(layout.end, &before);
    let bound = bind(subject, &plan(subject, case), &layout.buffers(&pool));
    submit(subject, |encoder| bound.record(encoder));
    let after = subject.read(&pool);

    let written = ["diff_src", "diff_gamma", "diff_beta", "sums", "workspace"];
    let written: Vec<_> = written.iter().map(|name| layout.place(name)).collect();
    for (at, (old, new)) in before.iter().zip(&after).enumerate() {
        let at = at as u64;
        let inside = |&(offset, size): &(u64, u64)| (offset..offset + size).contains(&at);
        assert!(
            old == new || written.iter().any(inside),
            "{what}: byte {at} of the pool changed; {:?}",
            layout.ranges
        );
    }
    let tensor = |name: &str| &after[layout.place(name).0 as usize..];
    let both = case.options.param_grads == ParamGrads::Both;
    let params = |name| both.then(|| first(tensor(name), case.mean.len()));
    Grads {
        diff_src: first(tensor("diff_src"), case.src.len()),
        diff_gamma: params("diff_gamma"),
        diff_beta: params("diff_beta"),
        diff_residual: None,
    }
}

/// A pooled buffer is bound in windows as well, and in place.
#[test]
fn a_pooled_buffer_in_windows() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        let cut = subject.with_profile("in windows", |profile| {
            profile.max_binding = 64 << 10;
            profile.tuning = Tuning {
                tile: 4096, // the partial sums must fit the binding
                ..Tuning::SOFTWARE
            };
            profile.window_unit = 4096;
        });
        for shape in [&[9, 7, 1003][..], &[20_011, 3]] {
            let case = Case::<f32, f32>::random(shape, options_in(DataFormat::Ncx), 9);
            let want = bits(&case.run(&cut).unwrap());
            for in_place in [false, true] {
                let layout = Layout::of(&cut, &case, in_place);
                let what = format!("{shape:?} {in_place} on {}", cut.name);
                let got = run_pooled(&cut, &case, &layout, &what);
                assert!(bits(&got) == want, "{what}");
            }
        }
    }
}

/// The halves: sums of two shards of a batch, each on a device of its own, added on the host.
fn two_shards_on_two_devices<T: Element, P: ParamOf<T>>() {
    let (left, right) = (OwnDevices::new(), OwnDevices::new());
    let devices = left.subjects.iter().zip(&right.subjects);
    for (left, right) in devices.filter(|(left, _)| left.takes::<T>()) {
        for shape in [[6, 5, 7], [7, 3, 67], [300, 9, 2]] {
            for data_format in FORMATS {
                for (statistics, param_grads) in all_choices() {
                    // Alike whatever the type.
                    if param_grads != ParamGrads::Both && T::DTYPE != DType::F32 {
                        continue;
                    }
                    let options = BatchNormOptions {
                        statistics,
                        param_grads,
                        ..options_in(data_format)
                    };
                    let shape = in_format(&shape, data_format);
                    let whole = Case::<T, P>::random(&shape, options, 11);
                    synchronized([left, right], &whole);
                }
            }
        }
    }
}

every_pair!(two_shards_on_two_devices: f32 f32 f32, f64 f64 f64);

/// Rows 0..2 and 2.. of a batch, with the statistics of the whole.
fn synchronized<T: Element, P: ParamOf<T>>(subjects: [&Subject; 2], whole: &Case<T, P>) {
    let row = whole.src.len() / whole.shape[0];
    let shard = |rows: std::ops::Range<usize>| {
        let mut shard = whole.clone();
        shard.shape[0] = rows.len();
        shard.src = whole.src[rows.start * row..rows.end * row].to_vec();
        shard.diff_dst = whole.diff_dst[rows.start * row..rows.end * row].to_vec();
        shard
    };
    let shards = [shard(0..2), shard(2..whole.shape[0])];
    let parts: Vec<_> = subjects
        .into_iter()
        .zip(&shards)
        .map(|(subject, case)| {
            let buffers = Buffers::new(subject, case, Room::Exact);
            let plan = plan(subject, case);
            let sums = subject.buffer(plan.sums_size(), &[]);
            let workspace = subject.buffer(plan.workspace_size() + 512, &[]);
            let ranges = BatchNormBackwardBuffers {
                sums: Some((&sums).into()),
                workspace: Some(range(&workspace, 512, plan.workspace_size())),
                ..buffers.ranges()
            };
            let bound = bind(subject, &plan, &ranges);
            submit(subject, |encoder| bound.record_reduce(encoder).unwrap());
            (subject, case, buffers, sums, bound, workspace)
        })
        .collect();
    fn add<A: Element + std::ops::Add<Output = A>>(left: &[u8], right: &[u8]) -> Vec<u8> {
        let numbers = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, A>(bytes);
        let (left, right) = (numbers(left), numbers(right));
        let total: Vec<A> = left.into_iter().zip(right).map(|(a, b)| a + b).collect();
        bytemuck::cast_slice(&total).to_vec()
    }
    let read = |i: usize| parts[i].0.read(&parts[i].3);
    let sum = match T::DTYPE.accumulator() == T::DTYPE && size_of::<T>() == 8 {
        true => add::<f64>(&read(0), &read(1)),
        false => add::<f32>(&read(0), &read(1)),
    };
    let channels = whole.mean.len();
    let count = match size_of::<T>() == 8 {
        true => first::<f64>(&sum[16 * channels..], 1)[0],
        false => f64::from(first::<f32>(&sum[8 * channels..], 1)[0]),
    };
    assert_eq!(count, (whole.src.len() / channels) as f64);
    let options = &whole.options;
    if options.statistics == Through::Constant && options.param_grads != ParamGrads::Both {
        let sums = &sum[..2 * channels * T::DTYPE.accumulator().size() as usize];
        assert!(
            sums.iter().all(|&byte| byte == 0),
            "nothing depends on them"
        );
    }
    let mut diff_src = Vec::new();
    for (subject, case, buffers, sums, bound, workspace) in &parts {
        subject.write(sums, 0, &sum);
        // The workspace may be used between the halves.
        subject.write(workspace, 0, &vec![0xff; workspace.size() as usize]);
        submit(subject, |encoder| bound.record_apply(encoder).unwrap());
        let results = buffers.results(subject, case);
        diff_src.extend_from_slice(&results.diff_src);
        // Every shard has the whole's parameter gradients.
        let all = Grads {
            diff_src: whole.run(subject).unwrap().diff_src,
            ..results
        };
        let what = format!("{:?} {:?} on {}", whole.shape, whole.options, subject.name);
        assert_close(&all, &whole.reference(), whole.options.param_grads, &what);
    }
    let all = Grads {
        diff_src,
        diff_gamma: None::<Vec<P>>,
        diff_beta: None,
        diff_residual: None,
    };
    let what = format!("{:?} {:?} in shards", whole.shape, whole.options);
    assert_close(&all, &whole.reference(), ParamGrads::Frozen, &what);
}

/// One layer's diff_src is the diff_dst of the layer before it, in one submission; then everything a
/// second time, with other data in the same buffers.
#[test]
fn two_layers_recorded_twice() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        let shape = [4, 6, 35];
        let options = options_in(DataFormat::Ncx);
        let second = Case::<f32, f32>::random(&shape, options, 1);
        let first_layer = |grads: &Grads<f32, f32>| {
            let mut case = Case::<f32, f32>::random(&shape, options, 2);
            case.diff_dst.clone_from(&grads.diff_src);
            case
        };
        let second_buffers = Buffers::new(subject, &second, Room::Exact);
        let mut first_buffers = Buffers::new(
            subject,
            &Case::<f32, f32>::random(&shape, options, 2),
            Room::Exact,
        );
        first_buffers.diff_dst = second_buffers.diff_src.clone();
        let plan = plan(subject, &second);
        let bound_second = bind(subject, &plan, &second_buffers.ranges());
        let bound_first = bind(subject, &plan, &first_buffers.ranges());
        // The same twice in one encoder changes nothing.
        submit(subject, |encoder| {
            bound_second.record(encoder);
            bound_first.record(encoder);
            bound_second.record(encoder);
            bound_first.record(encoder);
        });
        let mut step = second;
        for round in 0..2 {
            let want_second = step.run(subject).unwrap();
            let want_first = first_layer(&want_second).run(subject).unwrap();
            let got_second = second_buffers.results(subject, &step);
            let got_first = first_buffers.results(subject, &first_layer(&want_second));
            assert!(
                bits(&got_second) == bits(&want_second),
                "{round} {}",
                subject.name
            );
            assert!(
                bits(&got_first) == bits(&want_first),
                "{round} {}",
                subject.name
            );
            // The next step.
            step.diff_dst.reverse();
            let bytes = bytemuck::cast_slice(&step.diff_dst);
            subject.write(&second_buffers.diff_dst, 0, bytes);
            submit(subject, |encoder| {
                bound_second.record(encoder);
                bound_first.record(encoder);
            });
        }
    }
}

/// Three layers in one pass of the caller's, each fed by the one before, with one workspace for all: the bits of
/// a pass for each.
#[test]
fn layers_in_one_pass() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        for (data_format, statistics) in [
            (DataFormat::Ncx, Through::Batch),
            (DataFormat::Nxc, Through::Batch),
            (DataFormat::Ncx, Through::Constant),
        ] {
            let (split, fused) = match data_format {
                DataFormat::Ncx => (Algorithm::ChannelsFirst, Algorithm::FusedChannelsFirst),
                DataFormat::Nxc => (Algorithm::ChannelsLast, Algorithm::FusedChannelsLast),
            };
            // Split, fused by whole blocks, and fused in turns.
            for (algorithm, fused_block) in [(split, 0), (fused, u32::MAX), (fused, 800)] {
                let fits =
                    statistics == Through::Batch && subject.gpu.profile().max_storage_buffers >= 8;
                if algorithm == fused && !fits {
                    println!("{algorithm} is not for {statistics:?} on {}", subject.name);
                    continue;
                }
                let subject = subject.with_profile("layers", |profile| {
                    profile.algorithm = Some(algorithm);
                    profile.tuning = Tuning {
                        cheap_barriers: 1,
                        fused_block,
                        tile: 512,
                        ..Tuning::SOFTWARE
                    };
                });
                let options = BatchNormOptions {
                    statistics,
                    ..options_in(data_format)
                };
                let shape = in_format(&[4, 8, 92], data_format);
                let what = format!("{options:?} {algorithm} {fused_block} on {}", subject.name);
                let run = |record: &dyn Fn(&mut wgpu::CommandEncoder, &[Bound])| {
                    let cases =
                        [1, 2, 3].map(|seed| Case::<f32, f32>::random(&shape, options, seed));
                    let mut layers = cases
                        .each_ref()
                        .map(|case| Buffers::new(&subject, case, Room::Exact));
                    for i in 1..layers.len() {
                        layers[i].diff_dst = layers[i - 1].diff_src.clone();
                    }
                    let plan = plan(&subject, &cases[0]);
                    assert_eq!(plan.dispatches() == 1, algorithm == fused, "{what}");
                    let workspace = subject.buffer(plan.workspace_size(), &[]);
                    let sums = subject.buffer(plan.sums_size(), &[]);
                    let bound = layers.each_ref().map(|buffers| {
                        let ranges = BatchNormBackwardBuffers {
                            workspace: Some((&workspace).into()),
                            sums: Some((&sums).into()),
                            ..buffers.ranges()
                        };
                        bind(&subject, &plan, &ranges)
                    });
                    submit(&subject, |encoder| record(encoder, &bound));
                    let results = layers.iter().zip(&cases);
                    results
                        .map(|(buffers, case)| bits(&buffers.results(&subject, case)))
                        .collect::<Vec<_>>()
                };
                let passes = run(&|encoder, layers| {
                    for layer in layers {
                        layer.record(encoder);
                    }
                });
                let one_pass = run(&|encoder, layers| {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    for layer in layers {
                        layer.record_in(&mut pass);
                    }
                });
                assert!(one_pass == passes, "{what}");
                let halves = run(&|encoder, layers| {
                    for layer in layers {
                        layer.record_reduce(encoder).unwrap();
                        layer.record_apply(encoder).unwrap();
                    }
                });
                let halves_in_one_pass = run(&|encoder, layers| {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    for layer in layers {
                        layer.record_reduce_in(&mut pass).unwrap();
                        layer.record_apply_in(&mut pass).unwrap();
                    }
                });
                assert!(halves_in_one_pass == halves, "halves: {what}");
                // And what a layer alone gives: the first is fed by nothing.
                let first = Case::<f32, f32>::random(&shape, options, 1);
                assert!(one_pass[0] == bits(&first.run(&subject).unwrap()), "{what}");
            }
        }
    }
}

/// A dimension of 0: no diff_src, and zeros where there are channels.
#[test]
fn empty_tensors() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        for shape in [
            &[0, 3, 5][..],
            &[4, 3, 0],
            &[4, 0, 5],
            &[0, 5],
            &[0, 0],
            &[3, 0],
        ] {
            for data_format in FORMATS {
                for options in options_of(data_format) {
                    let case = Case::<f32, f32>::random(shape, options, 1);
                    let what = format!("{shape:?} {options:?} on {}", subject.name);
                    let grads = case.run(subject).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert!(grads.diff_src.is_empty(), "{what}");
                    let zeros = vec![0.0; case.mean.len()];
                    let both = options.param_grads == ParamGrads::Both;
                    assert_eq!(grads.diff_gamma, both.then(|| zeros.clone()), "{what}");
                    assert_eq!(grads.diff_beta, both.then(|| zeros.clone()), "{what}");

                    let buffers = Buffers::new(subject, &case, Room::Exact);
                    let plan = plan(subject, &case);
                    let sums = subject.buffer(plan.sums_size(), &[0xff; 4]);
                    let ranges = BatchNormBackwardBuffers {
                        sums: Some((&sums).into()),
                        ..buffers.ranges()
                    };
                    let bound = bind(subject, &plan, &ranges);
                    submit(subject, |encoder| bound.record_reduce(encoder).unwrap());
                    if case.mean.is_empty() {
                        println!("{what}: no channels, so no sums");
                    } else {
                        let sums: Vec<f32> = first(&subject.read(&sums), 2 * case.mean.len() + 1);
                        assert!(sums.iter().all(|&sum| sum == 0.0), "{what}: {sums:?}");
                    }
                    submit(subject, |encoder| bound.record_apply(encoder).unwrap());
                    assert_eq!(buffers.results(subject, &case), grads, "{what}");
                }
            }
        }
    }
}

/// The kernels of an adapter's own sizes and of a GPU's fit a device with downlevel limits.
fn downlevel_limits<T: Element, P: ParamOf<T>>() {
    let devices = OwnDevices::new();
    for subject in devices.subjects.iter().filter(|s| s.takes::<T>()) {
        let subject = subject.with_tuning("gpu", Tuning::GPU);
        for data_format in FORMATS {
            let options = options_in(data_format);
            let case = Case::<T, P>::random(&[5, 33, 45], options, 1);
            case.check(&subject, &format!("{}/{}", T::DTYPE, P::DTYPE));
        }
    }
}

every_pair!(downlevel_limits);

#[test]
fn halves_need_their_sums() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        let case = Case::<f32, f32>::random(&[5, 33, 45], options_in(DataFormat::Ncx), 1);
        let buffers = Buffers::new(subject, &case, Room::Exact);
        let bound = bind(subject, &plan(subject, &case), &buffers.ranges());
        submit(subject, |encoder| {
            let want = Err(Error::BufferPresence {
                tensor: "sums",
                expected: true,
            });
            assert_eq!(bound.record_reduce(encoder), want);
            assert_eq!(bound.record_apply(encoder), want);
            bound.record(encoder);
        });
        assert!(bits(&buffers.results(subject, &case)) == bits(&case.run(subject).unwrap()));
    }
}
