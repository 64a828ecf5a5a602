//! Plan, bind, record: the caller's device, buffers and encoder.

use crate::common::buffers::{Buffers, Room, range, with};
use crate::common::data::{
    FORMATS, Problem, Values, all_choices, assert_close, batch_norm_gradient, find, in_format,
    types,
};
use crate::common::{Noop, OwnDevices, Subject, every_pair, subjects, takes};
use std::ops::Range;
use wgpu_norm::synchronized::Ranks;
use wgpu_norm::{
    Algorithm, Backward, Bound, BufferRange, Channels, DType, DataFormat, Element, Error, Norm,
    Operation, Pass, Plan, Tensor, Through, Tuning,
};

/// Odd and even totals, channels first and last, channels that end within four elements and at their end, and data in
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

fn plan(subject: &Subject, problem: &Problem) -> Plan {
    problem.operation.plan(subject.gpu.profile()).unwrap()
}

fn bind(subject: &Subject, plan: &Plan, ranges: &[(Tensor, BufferRange<'_>)]) -> Bound {
    plan.bind(&subject.gpu, ranges)
        .unwrap_or_else(|error| panic!("{}: {error}", subject.name))
}

/// A buffer for the sums between the two halves.
fn sums_of(subject: &Subject, plan: &Plan) -> wgpu::Buffer {
    subject.buffer(plan.sums().unwrap().bytes(), &[0xff; 4])
}

fn backward(operation: &Operation) -> Backward {
    match operation.pass {
        Pass::Backward(backward) => backward,
        other => panic!("{other:?}"),
    }
}

/// A gradient with each choice that changes which tensors are bound.
fn choices(gradient: &Operation) -> [Operation; 3] {
    let both = Backward::default();
    let frozen = both.with_param_grads(false);
    [both, frozen, frozen.with_through(Through::Constant)].map(|pass| {
        let mut chosen = gradient.clone();
        chosen.pass = pass.into();
        chosen
    })
}

/// Operations, each with a number for its combination of shape and choice, and a seed.
fn every_operation<T: Element, P: Element>() -> Vec<(usize, u64, Operation)> {
    let mut all = Vec::new();
    for (seed, shape) in SHAPES.iter().enumerate() {
        for format in FORMATS {
            let gradient = batch_norm_gradient::<T, P>(&in_format(shape, format), format);
            let gradient = gradient.with_params(seed % 2 == 0, false);
            let choices = choices(&gradient).into_iter().enumerate();
            all.extend(choices.map(|(choice, of)| (seed + choice, seed as u64, of)));
        }
    }
    all
}

/// The problems that these types run.
fn problems_taken<T: Element, P: Element>() -> impl Iterator<Item = Problem> {
    let taken = every_operation::<T, P>().into_iter();
    let taken = taken.filter(|(combination, ..)| takes::<T, P>(*combination));
    taken.map(|(_, seed, operation)| Problem::random(&operation, seed))
}

/// Buffers with and without padding after the tensor give the same bits as the host path.
fn exact_and_padded_buffers<T: Element, P: Element>() {
    let devices = OwnDevices::new();
    for subject in devices.subjects.iter().filter(|s| s.takes::<T>()) {
        for problem in problems_taken::<T, P>() {
            let want = problem.run(subject).unwrap();
            let plan = plan(subject, &problem);
            for room in [Room::Exact, Room::Padded] {
                let buffers = Buffers::new(subject, &problem, &plan, room);
                let bound = bind(subject, &plan, &buffers.ranges());
                submit(subject, |encoder| bound.record(encoder));
                let got = buffers.results(subject, &problem);
                let what = &problem.operation;
                assert!(got == want, "{what:?} {room:?} on {}", subject.name);
            }
        }
    }
}

every_pair!(exact_and_padded_buffers: f32 f32 f32, bf16_f32 bf16 f32);

/// Buffers have exactly the sizes that a plan reports, for batch norm and for layer norm.
fn sizes_of_buffers<T: Element, P: Element>() {
    let noop = Noop::new(wgpu::Limits::default(), wgpu::Features::SHADER_F64);
    for (_, _, operation) in every_operation::<T, P>() {
        check_sizes(&noop.subject, &operation);
    }
    for (affine, shape) in [(true, [5, 7]), (false, [3, 8]), (true, [1, 1001])] {
        let norm = Norm::layer(-1);
        let operation = Operation::new(norm, Backward::default(), &shape, types::<T, P>());
        check_sizes(&noop.subject, &operation.with_params(affine, affine));
    }
}

every_pair!(sizes_of_buffers);

fn check_sizes(subject: &Subject, operation: &Operation) {
    let what = format!("{operation:?}");
    let plan = operation.plan(subject.gpu.profile()).unwrap();
    let shape = &operation.shape;
    let (params, statistics, has_halves) = match operation.norm {
        Norm::Batch(Channels::Axis(DataFormat::Ncx)) => (shape[1], shape[1], true),
        Norm::Batch(_) => (shape[shape.len() - 1], shape[shape.len() - 1], true),
        _ => (shape[1], shape[0], false),
    };
    let n = shape.iter().product();
    let types = operation.types;
    let both = backward(operation).param_grads;
    let param_grads = both && (operation.gamma || has_halves);
    // Whether each tensor exists, its elements, and their type.
    let mut want = vec![
        (Tensor::Src, true, n, types.data),
        (Tensor::DiffDst, true, n, types.data),
        (Tensor::Mean, true, statistics, types.statistics),
        (Tensor::Variance, true, statistics, types.statistics),
        (Tensor::Gamma, operation.gamma, params, types.params),
        (Tensor::DiffSrc, true, n, types.data),
        (Tensor::DiffGamma, param_grads, params, types.params),
        (Tensor::DiffBeta, param_grads, params, types.params),
    ];
    want.retain(|(_, is_there, ..)| *is_there);
    let (mut exact, mut padded) = (Vec::new(), Vec::new());
    for used in plan.buffers() {
        if used.tensor == Tensor::Workspace {
            let bytes = plan.workspace_bytes();
            assert_eq!([used.bytes, used.padded_bytes], [bytes; 2], "{what}");
        } else {
            let at = want.iter().position(|(tensor, ..)| *tensor == used.tensor);
            let (_, _, elements, dtype) = want.swap_remove(at.expect("a tensor of the gradient"));
            let (elements, size) = (elements as u64, dtype.size());
            assert_eq!(used.bytes, (elements * size).next_multiple_of(4), "{what}");
            let with_padding = elements.next_multiple_of(4) * size;
            assert_eq!(used.padded_bytes, with_padding, "{what}");
        }
        exact.push((used.tensor, subject.buffer(used.bytes, &[])));
        padded.push((used.tensor, subject.buffer(used.padded_bytes, &[])));
    }
    assert!(want.is_empty(), "{what}: no buffers for {want:?}");
    assert_eq!(plan.sums().is_some(), has_halves, "{what}");
    for mut buffers in [exact, padded] {
        let sums = plan.sums();
        buffers.extend(sums.map(|sums| (Tensor::Sums, subject.buffer(sums.bytes(), &[]))));
        let ranges = buffers.iter().map(|(tensor, b)| (*tensor, b.into()));
        let _ = bind(subject, &plan, &ranges.collect::<Vec<_>>());
    }
}

/// The place of each tensor in a pool.
struct Layout {
    places: Vec<(Tensor, Range<u64>)>,
    end: u64,
}

impl Layout {
    fn new(subject: &Subject, plan: &Plan, in_place: bool) -> Self {
        let alignment = subject.gpu.profile().alignment;
        let sums = (Tensor::Sums, plan.sums().unwrap().bytes());
        let uses = plan.buffers().into_iter();
        let mut sizes: Vec<_> = uses.map(|used| (used.tensor, used.bytes)).collect();
        sizes.push(sums);
        // Written tensors are between tensors that are read.
        let order = [
            Tensor::Src,
            Tensor::DiffGamma,
            Tensor::DiffDst,
            Tensor::Mean,
            Tensor::Sums,
            Tensor::Variance,
            Tensor::DiffSrc,
            Tensor::Gamma,
            Tensor::Workspace,
            Tensor::DiffBeta,
        ];
        sizes.sort_by_key(|(tensor, _)| order.iter().position(|own| own == tensor).unwrap());
        let mut layout = Self {
            places: Vec::new(),
            end: 512,
        };
        for (tensor, bytes) in sizes {
            if in_place && tensor == Tensor::DiffSrc {
                let diff_dst = layout.place(Tensor::DiffDst);
                layout.places.push((tensor, diff_dst));
                continue;
            }
            let place = layout.end..layout.end + bytes;
            layout.end = place.end.next_multiple_of(alignment);
            layout.places.push((tensor, place));
        }
        layout
    }

    fn place(&self, tensor: Tensor) -> Range<u64> {
        let mut places = self.places.iter();
        places.find(|(own, _)| *own == tensor).unwrap().1.clone()
    }

    fn bytes(&self, tensor: Tensor) -> Range<usize> {
        let place = self.place(tensor);
        place.start as usize..place.end as usize
    }
}

/// Runs a problem in one buffer, with and without diff_src over diff_dst, and asserts the bits of the host path.
fn check_pooled(subject: &Subject, problem: &Problem) {
    let want = problem.run(subject).unwrap();
    let plan = plan(subject, problem);
    for in_place in [false, true] {
        let layout = Layout::new(subject, &plan, in_place);
        let what = &problem.operation;
        let what = format!("{what:?} in place: {in_place} on {}", subject.name);
        // Calculating with 0x3e changes it, and NaN shows in results: no filler may be touched.
        for filler in [0x3e, 0xff] {
            let got = run_filled(subject, problem, &plan, &layout, filler, &what);
            assert!(got == want, "{what}");
        }
    }
}

fn run_filled(
    subject: &Subject,
    problem: &Problem,
    plan: &Plan,
    layout: &Layout,
    filler: u8,
    what: &str,
) -> Vec<Values> {
    let mut before = vec![filler; layout.end as usize];
    for input in &problem.inputs {
        let place = layout.bytes(input.used.tensor);
        before[place][..input.bytes.len()].copy_from_slice(&input.bytes);
    }
    let pool = subject.buffer(layout.end, &before);
    let places = layout.places.iter();
    let ranges: Vec<_> = places
        .map(|(tensor, at)| (*tensor, range(&pool, at.start, at.end - at.start)))
        .collect();
    let bound = bind(subject, plan, &ranges);
    submit(subject, |encoder| bound.record(encoder));
    let after = subject.read(&pool);

    let mut results = problem.results();
    for result in &mut results {
        let len = result.bytes.len();
        let place = layout.bytes(result.used.tensor);
        result.bytes.copy_from_slice(&after[place][..len]);
    }
    // Everything that is not written is unchanged.
    let mut others = after;
    for (tensor, _) in &layout.places {
        let is_result = results.iter().any(|result| result.used.tensor == *tensor);
        if is_result || [Tensor::Sums, Tensor::Workspace].contains(tensor) {
            let place = layout.bytes(*tensor);
            others[place.clone()].copy_from_slice(&before[place]);
        }
    }
    let changed = before.iter().zip(&others).position(|(old, new)| old != new);
    let places = &layout.places;
    assert_eq!(changed, None, "{what}: the pool's byte changed; {places:?}");
    results
}

/// One buffer for everything, in a caller's order and alignment, in which only the tensors are written.
fn one_pooled_buffer<T: Element, P: Element>() {
    let devices = OwnDevices::new();
    for subject in devices.subjects.iter().filter(|s| s.takes::<T>()) {
        problems_taken::<T, P>().for_each(|problem| check_pooled(subject, &problem));
    }
}

every_pair!(one_pooled_buffer: f32 f32 f32, f16 f16 f16);

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
            let operation = batch_norm_gradient::<f32, f32>(shape, DataFormat::Ncx);
            check_pooled(&cut, &Problem::random(&operation, 9));
        }
    }
}

/// The halves: sums of two shards of a batch, each on its own device, merged on the host.
fn two_shards_on_two_devices<T: Element, P: Element>() {
    let (left, right) = (OwnDevices::new(), OwnDevices::new());
    let devices = left.subjects.iter().zip(&right.subjects);
    for (left, right) in devices.filter(|(left, _)| left.takes::<T>()) {
        for shape in [[6, 5, 7], [7, 3, 67], [300, 9, 2]] {
            for format in FORMATS {
                let gradient = batch_norm_gradient::<T, P>(&in_format(&shape, format), format);
                for operation in all_choices(&gradient) {
                    // The same for all types.
                    let both = backward(&operation).param_grads;
                    if both || T::DTYPE == DType::F32 {
                        synchronized([left, right], &Problem::random(&operation, 11));
                    }
                }
            }
        }
    }
}

every_pair!(two_shards_on_two_devices: f32 f32 f32, f64 f64 f64);

/// Some samples of a batch, with the statistics of the whole.
fn shard(whole: &Problem, samples: Range<usize>) -> Problem {
    let mut shard = whole.clone();
    shard.operation.shape[0] = samples.len();
    let split = shard.inputs.iter_mut();
    for input in split.filter(|input| input.used.ranks == Ranks::Split) {
        let sample = input.bytes.len() / whole.operation.shape[0];
        input.used.shape[0] = samples.len();
        input.bytes = input.bytes[samples.start * sample..samples.end * sample].to_vec();
    }
    shard
}

/// Samples 0..2 and 2.. of a batch, each on its own device.
fn synchronized(subjects: [&Subject; 2], whole: &Problem) {
    let Operation { shape, types, .. } = &whole.operation;
    let what = format!("{:?} in shards on {}", whole.operation, subjects[0].name);
    let parts = subjects.into_iter().zip([0..2, 2..shape[0]]);
    let parts: Vec<_> = parts
        .map(|(subject, samples)| {
            let problem = shard(whole, samples);
            let plan = plan(subject, &problem);
            let buffers = Buffers::new(subject, &problem, &plan, Room::Exact);
            let sums = sums_of(subject, &plan);
            let bytes = plan.halves_workspace_bytes();
            let workspace = subject.buffer(bytes + 512, &[]);
            let own = range(&workspace, 512, bytes);
            let ranges = with(&buffers.ranges(), Tensor::Workspace, Some(own));
            let ranges = with(&ranges, Tensor::Sums, Some((&sums).into()));
            let bound = bind(subject, &plan, &ranges);
            submit(subject, |encoder| bound.record_reduce(encoder).unwrap());
            (
                subject,
                problem,
                plan.sums(),
                buffers,
                sums,
                bound,
                workspace,
            )
        })
        .collect();
    let read = |part: usize| parts[part].0.read(&parts[part].4);
    let merged = parts[0].2.unwrap().merge(&[&read(0), &read(1)]).unwrap();
    let reals: Vec<_> = types.data.accumulator().values(&merged).collect();
    let channels = find(&whole.inputs, Tensor::Mean).numbers().len();
    let elements: usize = shape.iter().product();
    assert_eq!(reals[2 * channels], (elements / channels) as f64, "{what}");
    let pass = backward(&whole.operation);
    if pass.through == Through::Constant && !pass.param_grads {
        let are_zero = reals[..2 * channels].iter().all(|sum| *sum == 0.0);
        assert!(are_zero, "nothing depends on them: {what}");
    }
    let mut diff_src = Vec::new();
    let mut all = Vec::new();
    for (subject, problem, _, buffers, sums, bound, workspace) in &parts {
        subject.write(sums, 0, &merged);
        // The workspace may be used for other work between the halves.
        subject.write(workspace, 0, &vec![0xff; workspace.size() as usize]);
        submit(subject, |encoder| bound.record_apply(encoder).unwrap());
        let results = buffers.results(subject, problem);
        diff_src.extend_from_slice(&find(&results, Tensor::DiffSrc).bytes);
        all.push(results);
    }
    // Every shard has the parameter gradients of the whole.
    let want = whole.reference();
    for mut results in all {
        let mut own = results.iter_mut();
        let own = own.find(|values| values.used.tensor == Tensor::DiffSrc);
        own.unwrap().bytes.clone_from(&diff_src);
        assert_close(&results, &want, &what);
    }
}

/// Uses the other layer's diff_src as this layer's diff_dst.
fn feed(layer: &mut Buffers, other: &Buffers) {
    let mut own = layer.0.iter_mut();
    let own = own.find(|(used, _)| used.tensor == Tensor::DiffDst);
    own.unwrap().1 = other.of(Tensor::DiffSrc).clone();
}

/// One layer's diff_src is the diff_dst of the layer before it, in one submission; then everything again, with other
/// data in the same buffers.
#[test]
fn two_layers_recorded_twice() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        let operation = batch_norm_gradient::<f32, f32>(&[4, 6, 35], DataFormat::Ncx);
        let mut second = Problem::random(&operation, 1);
        let mut first = Problem::random(&operation, 2);
        let plan = plan(subject, &second);
        let second_buffers = Buffers::new(subject, &second, &plan, Room::Exact);
        let mut first_buffers = Buffers::new(subject, &first, &plan, Room::Exact);
        feed(&mut first_buffers, &second_buffers);
        let bound_second = bind(subject, &plan, &second_buffers.ranges());
        let bound_first = bind(subject, &plan, &first_buffers.ranges());
        let record = |encoder: &mut wgpu::CommandEncoder| {
            bound_second.record(encoder);
            bound_first.record(encoder);
        };
        // Recording the same twice in one encoder changes nothing.
        submit(subject, |encoder| {
            record(encoder);
            record(encoder);
        });
        for round in 0..2 {
            let want_second = second.run(subject).unwrap();
            let between = find(&want_second, Tensor::DiffSrc).numbers();
            first.set(Tensor::DiffDst, &between);
            let want_first = first.run(subject).unwrap();
            let got_second = second_buffers.results(subject, &second);
            let got_first = first_buffers.results(subject, &first);
            assert!(got_second == want_second, "{round} {}", subject.name);
            assert!(got_first == want_first, "{round} {}", subject.name);
            // The next step.
            let mut diff_dst = find(&second.inputs, Tensor::DiffDst).numbers();
            diff_dst.reverse();
            second.set(Tensor::DiffDst, &diff_dst);
            let bytes = &find(&second.inputs, Tensor::DiffDst).bytes;
            subject.write(second_buffers.of(Tensor::DiffDst), 0, bytes);
            submit(subject, record);
        }
    }
}

/// A fused whole needs no workspace: only its halves do.
#[test]
fn a_fused_whole_binds_no_workspace() {
    for subject in subjects() {
        let subject = subject.with_profile("fused", |profile| {
            profile.algorithm = Some(Algorithm::FusedChannelsFirst);
        });
        let gradient = batch_norm_gradient::<f32, f32>(&[2, 8, 64], DataFormat::Ncx);
        let problem = Problem::random(&gradient, 1);
        let plan = plan(&subject, &problem);
        assert_eq!((plan.kernels().len(), plan.workspace_bytes()), (1, 0));
        let needed = plan.halves_workspace_bytes();
        assert!(needed > 0);
        // `buffers` makes one for each use that the plan reports.
        let buffers = Buffers::new(&subject, &problem, &plan, Room::Exact);
        assert!(
            plan.buffers()
                .iter()
                .all(|used| used.tensor != Tensor::Workspace)
        );
        let tiny = subject.buffer(4, &[]);
        let ranges = with(&buffers.ranges(), Tensor::Workspace, Some((&tiny).into()));
        let bound = bind(&subject, &plan, &ranges);
        submit(&subject, |encoder| bound.record(encoder));
        let whole = buffers.results(&subject, &problem);
        assert_close(&whole, &problem.reference(), &subject.name);
        // With sums, the halves are bound too.
        let sums = sums_of(&subject, &plan);
        let ranges = with(&ranges, Tensor::Sums, Some((&sums).into()));
        let error = plan.bind(&subject.gpu, &ranges).map(|_| ()).unwrap_err();
        let is_size =
            matches!(error, Error::BufferSize { expected, got: 4, .. } if expected == needed);
        assert!(is_size, "{error}");
        let bound = bind(&subject, &plan, &with(&ranges, Tensor::Workspace, None));
        submit(&subject, |encoder| {
            bound.record_reduce(encoder).unwrap();
            bound.record_apply(encoder).unwrap();
        });
        let halves = buffers.results(&subject, &problem);
        assert_close(&halves, &problem.reference(), &subject.name);
    }
}

/// Three layers in one pass of the caller's, each fed by the one before, with one workspace for all, give the same bits
/// as one pass each.
#[test]
fn layers_in_one_pass() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        for (format, through) in [
            (DataFormat::Ncx, Through::Batch),
            (DataFormat::Nxc, Through::Batch),
            (DataFormat::Ncx, Through::Constant),
        ] {
            let (split, fused) = match format {
                DataFormat::Ncx => (Algorithm::ChannelsFirst, Algorithm::FusedChannelsFirst),
                DataFormat::Nxc => (Algorithm::ChannelsLast, Algorithm::FusedChannelsLast),
            };
            // Split, fused with whole blocks, and fused in turns.
            for (algorithm, fused_block) in [(split, 0), (fused, u32::MAX), (fused, 800)] {
                let fits =
                    through == Through::Batch && subject.gpu.profile().max_storage_buffers >= 8;
                if algorithm == fused && !fits {
                    println!("{algorithm} is not for {through:?} on {}", subject.name);
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
                let shape = in_format(&[4, 8, 92], format);
                let mut operation = batch_norm_gradient::<f32, f32>(&shape, format);
                operation.pass = Backward::default().with_through(through).into();
                let what = format!("{operation:?} {algorithm} {fused_block}");
                check_layers(&subject, &operation, algorithm == fused, &what);
            }
        }
    }
}

fn check_layers(subject: &Subject, operation: &Operation, is_fused: bool, what: &str) {
    let what = format!("{what} on {}", subject.name);
    let run = |record: &dyn Fn(&mut wgpu::CommandEncoder, &[Bound])| {
        let problems = [1, 2, 3].map(|seed| Problem::random(operation, seed));
        let plan = plan(subject, &problems[0]);
        assert_eq!(plan.kernels().len() == 1, is_fused, "{what}");
        let buffers = |problem| Buffers::new(subject, problem, &plan, Room::Exact);
        let mut layers = problems.each_ref().map(buffers);
        for i in 1..layers.len() {
            let (before, own) = layers.split_at_mut(i);
            feed(&mut own[0], &before[i - 1]);
        }
        let workspace = subject.buffer(plan.halves_workspace_bytes(), &[]);
        let sums = sums_of(subject, &plan);
        let bound = layers.each_ref().map(|buffers| {
            let workspace = Some((&workspace).into());
            let ranges = with(&buffers.ranges(), Tensor::Workspace, workspace);
            let ranges = with(&ranges, Tensor::Sums, Some((&sums).into()));
            bind(subject, &plan, &ranges)
        });
        submit(subject, |encoder| record(encoder, &bound));
        let results = layers.iter().zip(&problems);
        let results = results.map(|(buffers, problem)| buffers.results(subject, problem));
        results.collect::<Vec<_>>()
    };
    let passes = run(&|encoder, layers| layers.iter().for_each(|layer| layer.record(encoder)));
    let one_pass = run(&|encoder, layers| {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        layers.iter().for_each(|layer| layer.record_in(&mut pass));
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
    // The first layer, which is fed by none, gives the same alone.
    let first = Problem::random(operation, 1).run(subject).unwrap();
    assert!(one_pass[0] == first, "{what}");
}

/// A dimension of 0: no diff_src, and zeros where there are channels.
#[test]
fn empty_tensors() {
    let devices = OwnDevices::new();
    let shapes = [
        &[0, 3, 5][..],
        &[4, 3, 0],
        &[4, 0, 5],
        &[0, 5],
        &[0, 0],
        &[3, 0],
    ];
    for subject in &devices.subjects {
        for shape in shapes {
            for format in FORMATS {
                for operation in choices(&batch_norm_gradient::<f32, f32>(shape, format)) {
                    check_empty(subject, &Problem::random(&operation, 1));
                }
            }
        }
    }
}

fn check_empty(subject: &Subject, problem: &Problem) {
    let what = format!("{:?} on {}", problem.operation, subject.name);
    let grads = problem
        .run(subject)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let channels = find(&problem.inputs, Tensor::Mean).numbers().len();
    let mut want = vec![(Tensor::DiffSrc, vec![])];
    if backward(&problem.operation).param_grads {
        want.push((Tensor::DiffGamma, vec![0.0; channels]));
        want.push((Tensor::DiffBeta, vec![0.0; channels]));
    }
    let got = grads.iter();
    let got: Vec<_> = got.map(|v| (v.used.tensor, v.numbers())).collect();
    assert_eq!(got, want, "{what}");

    let plan = plan(subject, problem);
    let buffers = Buffers::new(subject, problem, &plan, Room::Exact);
    let sums = sums_of(subject, &plan);
    let ranges = with(&buffers.ranges(), Tensor::Sums, Some((&sums).into()));
    let bound = bind(subject, &plan, &ranges);
    submit(subject, |encoder| bound.record_reduce(encoder).unwrap());
    if channels == 0 {
        println!("{what}: no channels, so no sums");
    } else {
        let sums: Vec<_> = DType::F32.values(&subject.read(&sums)).collect();
        assert_eq!(sums, vec![0.0; 2 * channels + 1], "{what}");
    }
    submit(subject, |encoder| bound.record_apply(encoder).unwrap());
    assert_eq!(buffers.results(subject, problem), grads, "{what}");
}

/// The kernels for an adapter's own sizes and for a GPU's fit a device with downlevel limits.
fn downlevel_limits<T: Element, P: Element>() {
    let devices = OwnDevices::new();
    for subject in devices.subjects.iter().filter(|s| s.takes::<T>()) {
        let subject = subject.with_tuning("gpu", Tuning::GPU);
        for format in FORMATS {
            let operation = batch_norm_gradient::<T, P>(&[5, 33, 45], format);
            let what = format!("{}/{}", T::DTYPE, P::DTYPE);
            let _ = Problem::random(&operation, 1).check(&subject, &what);
        }
    }
}

every_pair!(downlevel_limits);

#[test]
fn halves_need_their_sums() {
    let devices = OwnDevices::new();
    for subject in &devices.subjects {
        let operation = batch_norm_gradient::<f32, f32>(&[5, 33, 45], DataFormat::Ncx);
        let problem = Problem::random(&operation, 1);
        let plan = plan(subject, &problem);
        let buffers = Buffers::new(subject, &problem, &plan, Room::Exact);
        let bound = bind(subject, &plan, &buffers.ranges());
        submit(subject, |encoder| {
            for half in [bound.record_reduce(encoder), bound.record_apply(encoder)] {
                let is_missing = matches!(
                    half,
                    Err(Error::BufferPresence {
                        tensor: "sums",
                        expected: true,
                        ..
                    })
                );
                assert!(is_missing, "{half:?}");
            }
            bound.record(encoder);
        });
        assert!(buffers.results(subject, &problem) == problem.run(subject).unwrap());
    }
}
