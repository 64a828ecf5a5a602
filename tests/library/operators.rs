//! The operators under the documents' own names: their vectors, the numbers printed by the tests of other
//! implementations, and the same bits as the engine that they are built on.

use crate::common::buffers::{Buffers, Room, submit, with};
use crate::common::data::{
    FORMATS, Problem, Random, Values, assert_close, batch_norm_gradient, in_format, to_f64, types,
};
use crate::common::vectors::{Vector, of_operator};
use crate::common::{Subject, every_pair, subjects};
use half::{bf16, f16};
use pollster::block_on;
use wgpu_norm::operators::directml::{
    BatchNormalizationGrad, BatchNormalizationTrainingGrad, DataType, GradInputs, GradOutputs,
};
use wgpu_norm::operators::ngraph::{BackpropInputs, BackpropOutputs, BatchNormTrainingBackprop};
use wgpu_norm::operators::onednn::{
    BatchNormOutputs, BatchNormTrainingBackward, BatchNormTrainingBackwardInputs,
    LayerNormBackward, LayerNormBackwardInputs, LayerNormOutputs,
};
use wgpu_norm::{
    Backward, BackwardArgs, BatchNormOptions, Bound, Channels, DType, DataFormat, Element, Error,
    GpuBatchNorm, GpuContext, GpuLayerNorm, Grads, LayerNormOptions, Norm, Operation, ParamOf,
    Pass, Plan, SavedRef, Tensor, Through,
};

/// Asserts that results are near others' printed numbers, within a relative and an absolute distance.
fn assert_near(got: &[f32], want: &[f32], relative: f32, absolute: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= absolute + relative * want.abs();
        assert!(near, "{what}: {got} at {index}, not {want}");
    }
}

/// A gradient's tensors; statistics have the parameters' type.
struct Tensors<T, P> {
    shape: Vec<usize>,
    src: Vec<T>,
    diff_dst: Vec<T>,
    mean: Vec<P>,
    variance: Vec<P>,
    gamma: Option<Vec<P>>,
}

impl<T: Element, P: Element> Tensors<T, P> {
    fn of(problem: &Problem) -> Self {
        let gamma = problem.has(Tensor::Gamma);
        Self {
            shape: problem.operation.shape.clone(),
            src: problem.elements(Tensor::Src),
            diff_dst: problem.elements(Tensor::DiffDst),
            mean: problem.elements(Tensor::Mean),
            variance: problem.elements(Tensor::Variance),
            gamma: gamma.then(|| problem.elements(Tensor::Gamma)),
        }
    }
}

/// A problem's results from an operator's: all of them, and no others.
fn values<T: Element, P: Element>(
    problem: &Problem,
    diff_src: &[T],
    [diff_gamma, diff_beta]: [Option<&[P]>; 2],
) -> Vec<Values> {
    let given = [
        (Tensor::DiffSrc, Some(bytemuck::cast_slice(diff_src))),
        (Tensor::DiffGamma, diff_gamma.map(bytemuck::cast_slice)),
        (Tensor::DiffBeta, diff_beta.map(bytemuck::cast_slice)),
    ];
    let given = given.into_iter().filter_map(|(t, bytes)| Some((t, bytes?)));
    let given: Vec<(Tensor, &[u8])> = given.collect();
    let mut results = problem.results();
    assert_eq!(given.len(), results.len());
    for (result, (tensor, bytes)) in results.iter_mut().zip(given) {
        assert_eq!(result.used.tensor, tensor);
        result.bytes.copy_from_slice(bytes);
    }
    results
}

fn of_grads<T: Element, P: Element>(problem: &Problem, grads: &Grads<T, P>) -> Vec<Values> {
    assert!(grads.diff_residual.is_none());
    let params = [&grads.diff_gamma, &grads.diff_beta].map(|grad| grad.as_deref());
    values(problem, &grads.diff_src, params)
}

/// The layer's results, with statistics in the type of sums.
fn of_layer<T: Element, P: ParamOf<T>>(subject: &Subject, problem: &Problem) -> Vec<Values> {
    let operation = &problem.operation;
    let (Norm::Batch(Channels::Axis(format)), Pass::Backward(backward)) =
        (&operation.norm, operation.pass)
    else {
        panic!("{operation}");
    };
    let options = BatchNormOptions::new(*format)
        .epsilon(operation.epsilon)
        .through(backward.through)
        .param_grads(backward.param_grads);
    let layer = GpuBatchNorm::new(&subject.gpu, options).unwrap();
    let of = Tensors::<T, P>::of(problem);
    let [mean, variance] =
        [Tensor::Mean, Tensor::Variance].map(|tensor| problem.elements::<T::Sum>(tensor));
    let args = BackwardArgs::new(
        &of.shape,
        &of.src,
        &of.diff_dst,
        SavedRef::moments(&mean, &variance),
    );
    let grads = block_on(layer.backward(args.gamma(of.gamma.as_deref())));
    of_grads(problem, &grads.unwrap())
}

/// An operator plan's results in buffers that end with the tensors' last words; diff_src is over diff_dst, or separate.
fn recorded(
    subject: &Subject,
    problem: &Problem,
    operation: &Operation,
    in_place: bool,
) -> Vec<Values> {
    let plan = operation.plan(subject.gpu.profile()).unwrap();
    let buffers = Buffers::new(subject, problem, &plan, Room::Exact);
    let diff_src = buffers.of(match in_place {
        true => Tensor::DiffDst,
        false => Tensor::DiffSrc,
    });
    let ranges = with(&buffers.ranges(), Tensor::DiffSrc, Some(diff_src.into()));
    submit(subject, &plan.bind(&subject.gpu, &ranges).unwrap());
    let mut results = buffers.results(subject, problem);
    let bytes = subject.read(diff_src);
    let (own, behind) = bytes.split_at(results[0].bytes.len());
    assert_eq!(results[0].used.tensor, Tensor::DiffSrc);
    results[0].bytes.copy_from_slice(own);
    assert!(behind.iter().all(|byte| *byte == 0), "{behind:?}");
    results
}

mod onednn {
    use super::*;

    /// The document's operator for an operation.
    fn op(operation: &Operation) -> BatchNormTrainingBackward {
        let (Norm::Batch(Channels::Axis(format)), Pass::Backward(backward)) =
            (&operation.norm, operation.pass)
        else {
            panic!("{operation}");
        };
        assert_eq!(backward.through, Through::Batch);
        BatchNormTrainingBackward {
            epsilon: operation.epsilon as f32,
            data_format: *format,
            outputs: if backward.param_grads {
                BatchNormOutputs::All
            } else {
                BatchNormOutputs::DiffSrc
            },
        }
    }

    fn inputs<T: Element, P: ParamOf<T>>(
        of: &Tensors<T, P>,
    ) -> BatchNormTrainingBackwardInputs<'_, T, P> {
        BatchNormTrainingBackwardInputs {
            shape: &of.shape,
            src: &of.src,
            diff_dst: &of.diff_dst,
            mean: &of.mean,
            variance: &of.variance,
            gamma: of.gamma.as_deref(),
        }
    }

    #[test]
    fn defaults_are_the_documents() {
        let batch_norm = BatchNormTrainingBackward::new(0.5);
        assert_eq!(batch_norm.epsilon, 0.5);
        assert_eq!(batch_norm.data_format, DataFormat::Nxc);
        assert_eq!(batch_norm.outputs, BatchNormOutputs::All);
        let layer_norm = LayerNormBackward::default();
        assert_eq!(layer_norm.begin_norm_axis, -1);
        assert!(layer_norm.use_affine);
        assert_eq!(layer_norm.epsilon, 1e-5);
    }

    #[test]
    fn batch_norm_vectors() {
        let mut tested = 0;
        for vector in of_operator("batch_norm_backward") {
            if vector.metadata["data_format"] == "broadcast" {
                continue;
            }
            if vector.metadata["statistics"] != "batch" {
                continue;
            }
            tested += 1;
            match (vector.dtype("src"), vector.dtype("mean")) {
                (DType::F32, DType::F32) => check_batch_norm::<f32, f32>(&vector),
                (DType::F16, DType::F32) => check_batch_norm::<f16, f32>(&vector),
                (DType::Bf16, DType::F32) => check_batch_norm::<bf16, f32>(&vector),
                (DType::Bf16, DType::Bf16) => check_batch_norm::<bf16, bf16>(&vector),
                (DType::F64, DType::F64) => tested -= 1, // nGraph's
                other => panic!("{}: {other:?}", vector.name),
            }
        }
        assert!(tested >= 15, "only {tested} vectors");
    }

    fn check_batch_norm<T: Element, P: ParamOf<T>>(vector: &Vector) {
        let (problem, want) = vector.problem();
        let (op, of) = (op(&problem.operation), Tensors::<T, P>::of(&problem));
        for subject in subjects() {
            let got = block_on(op.backward(&subject.gpu, inputs(&of))).unwrap();
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&of_grads(&problem, &got), &want, &what);
        }
    }

    /// The document's rule, and its opposite, which the document does not have.
    #[test]
    fn gamma_is_ignored_without_its_gradient_and_counts_where_it_is_frozen() {
        for format in FORMATS {
            let shape = in_format(&[4, 7, 33], format);
            let operation = batch_norm_gradient::<f32, f32>(&shape, format);
            let mut problem = Problem::random(&operation, 1);
            let of = Tensors::<f32, f32>::of(&problem);
            let without = BatchNormTrainingBackwardInputs {
                gamma: None,
                ..inputs(&of)
            };
            let all = op(&operation);
            let alone = BatchNormTrainingBackward {
                outputs: BatchNormOutputs::DiffSrc,
                ..all
            };
            let frozen = Backward::default().with_param_grads(false);
            problem.operation.pass = frozen.into();
            let bits = |values: &[f32]| bytemuck::cast_slice::<f32, u8>(values).to_vec();
            for subject in subjects() {
                let what = &subject.name;
                let backward = |op: BatchNormTrainingBackward, args| {
                    block_on(op.backward(&subject.gpu, args)).unwrap()
                };
                let ignored = backward(alone, inputs(&of));
                let ungiven = backward(alone, without);
                for grads in [&ignored, &ungiven] {
                    assert_eq!((&grads.diff_gamma, &grads.diff_beta), (&None, &None));
                }
                let [scaled, unscaled] =
                    [inputs(&of), without].map(|inputs| bits(&backward(all, inputs).diff_src));
                assert!(bits(&ignored.diff_src) == bits(&ungiven.diff_src), "{what}");
                assert!(bits(&ignored.diff_src) == unscaled, "{what}");
                assert!(bits(&ignored.diff_src) != scaled, "{what}");
                // diff_src alone.
                let [frozen] = &of_layer::<f32, f32>(subject, &problem)[..] else {
                    panic!("{what}");
                };
                assert!(frozen.bytes == scaled, "{what}");
            }
        }
    }

    fn batch_norm_is_the_engine_and_its_plan_records_the_same<T: Element, P: ParamOf<T>>() {
        for (param_grads, gammas) in [(true, &[true, false][..]), (false, &[false])] {
            for format in FORMATS {
                let norm = Norm::Batch(Channels::Axis(format));
                let pass = Backward::default().with_param_grads(param_grads);
                let shape = in_format(&[3, 5, 7], format);
                for &gamma in gammas {
                    let operation = Operation::new(norm.clone(), pass, &shape, types::<T, P>())
                        .with_epsilon(1.0 / 1024.0) // the same in f32 and f64
                        .with_params(gamma, false);
                    let problem = Problem::random(&operation, 2);
                    for subject in subjects().iter().filter(|s| s.takes::<T>()) {
                        check::<T, P>(subject, &problem);
                    }
                }
            }
        }
    }

    every_pair!(batch_norm_is_the_engine_and_its_plan_records_the_same);

    fn check<T: Element, P: ParamOf<T>>(subject: &Subject, problem: &Problem) {
        let what = format!("{:?} on {}", problem.operation, subject.name);
        let (op, of) = (op(&problem.operation), Tensors::<T, P>::of(problem));
        let operation = op.operation::<T, P>(&of.shape, of.gamma.is_some()).unwrap();
        assert_eq!(operation, problem.operation, "{what}");
        let host = block_on(op.backward(&subject.gpu, inputs(&of))).unwrap();
        let host = of_grads(problem, &host);
        assert!(host == problem.run(subject).unwrap(), "{what}");
        assert!(
            host == recorded(subject, problem, &operation, false),
            "{what}"
        );
        if P::DTYPE == T::Sum::DTYPE {
            assert!(host == of_layer::<T, P>(subject, problem), "{what}");
        }
    }

    /// oneDNN's own test of the operator, `BatchNormBackpropFp32`. Its epsilon is 0, which we refuse; one that does not
    /// change 1.25 does the same.
    #[test]
    fn batch_norm_as_onednn_prints_it() {
        let inputs = BatchNormTrainingBackwardInputs {
            shape: &[1, 1, 2, 2],
            src: &[1.0_f32, 2.0, 3.0, 4.0],
            diff_dst: &[0.1, 0.1, 0.2, 0.2],
            mean: &[2.5_f32],
            variance: &[1.25],
            gamma: Some(&[2.0]),
        };
        let op = BatchNormTrainingBackward {
            data_format: DataFormat::Ncx,
            ..BatchNormTrainingBackward::new(1e-30)
        };
        for subject in subjects() {
            let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
            let what = &subject.name;
            let diff_src = [0.01788854, -0.05366563, 0.05366563, -0.01788854];
            assert_near(&got.diff_src, &diff_src, 0.0, 1e-6, what);
            assert_near(&got.diff_gamma.unwrap(), &[0.178_885_44], 0.0, 1e-6, what);
            assert_near(&got.diff_beta.unwrap(), &[0.6], 0.0, 1e-6, what);
        }
    }

    /// oneDNN's own test of the operator, `LayerNormBackpropFp32`: statistics other than src's, and variance + epsilon
    /// a power of four.
    #[test]
    fn layer_norm_as_onednn_prints_it() {
        let affine = LayerNormBackwardInputs {
            shape: &[2, 2, 2],
            src: &[1.0_f32, -1.0, 2.0, 0.0, 1.0, -1.0, 2.0, 0.0],
            diff_dst: &[12.0, -2.0, 6.0, -1.0, 3.0, -0.5, 1.5, -0.25],
            mean: &[0.0_f32, 1.0, 0.0, 1.0],
            variance: &[3.9375, 0.9375, 0.1875, 3.9375],
            gamma: Some(&[0.125, 0.25]),
            beta: Some(&[0.0, 0.0]),
        };
        let plain = LayerNormBackwardInputs {
            diff_dst: &[1.5, -0.5, 0.75, -0.25, 0.375, -0.125, 0.1875, -0.0625],
            gamma: None,
            beta: None,
            ..affine
        };
        let diff_src = [0.375, -0.375, 0.0, 0.0, -1.5, 1.5, 0.046875, -0.046875];
        // gamma is used even if no other output is requested.
        let choices = [
            (true, LayerNormOutputs::All, affine),
            (true, LayerNormOutputs::DiffSrc, affine),
            (false, LayerNormOutputs::All, plain),
        ];
        for (use_affine, outputs, inputs) in choices {
            let op = LayerNormBackward {
                use_affine,
                epsilon: 0.0625,
                outputs,
                ..Default::default()
            };
            let wanted = use_affine && outputs == LayerNormOutputs::All;
            for subject in subjects() {
                let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
                let what = format!("affine {use_affine}, {outputs:?} on {}", subject.name);
                let operation = op.operation::<f32, f32>(inputs.shape).unwrap();
                let mut problem = Problem::random(&operation, 0);
                problem.set(Tensor::Src, &to_f64(inputs.src));
                problem.set(Tensor::DiffDst, &to_f64(inputs.diff_dst));
                problem.set(Tensor::Mean, &to_f64(inputs.mean));
                problem.set(Tensor::Variance, &to_f64(inputs.variance));
                if let Some(gamma) = inputs.gamma {
                    problem.set(Tensor::Gamma, &to_f64(gamma));
                }
                let recorded = recorded(subject, &problem, &operation, true);
                assert_eq!(recorded, of_grads(&problem, &got), "{what}");
                assert_near(&got.diff_src, &diff_src, 1e-6, 1e-6, &what);
                assert_eq!(got.diff_gamma.is_some(), wanted, "{what}");
                assert_eq!(got.diff_beta.is_some(), wanted, "{what}");
                if let (Some(diff_gamma), Some(diff_beta)) = (got.diff_gamma, got.diff_beta) {
                    assert_near(&diff_gamma, &[18.75, 3.125], 1e-6, 0.0, &what);
                    assert_near(&diff_beta, &[22.5, -3.75], 1e-6, 0.0, &what);
                }
            }
        }
    }

    #[test]
    fn gamma_and_beta_of_layer_norm_are_checked() {
        let gpu = &subjects()[0].gpu;
        let inputs = LayerNormBackwardInputs {
            shape: &[1, 2],
            src: &[1.0_f32, 3.0],
            diff_dst: &[1.0, 0.0],
            mean: &[2.0_f32],
            variance: &[1.0],
            gamma: Some(&[1.0, 1.0]),
            beta: None,
        };
        let run = |use_affine, inputs| {
            let op = LayerNormBackward {
                use_affine,
                ..Default::default()
            };
            block_on(op.backward(gpu, inputs))
        };
        assert!(run(true, inputs).is_ok());
        let error = run(false, inputs).unwrap_err().to_string();
        let want = "gamma: expected none, as use_affine is false, got a tensor";
        assert_eq!(error, want);
        let (gamma, beta) = (None, Some(&[0.0; 3][..]));
        let bare = LayerNormBackwardInputs { gamma, ..inputs };
        let error = run(true, bare).unwrap_err().to_string();
        assert_eq!(
            error,
            "gamma: expected a tensor, as use_affine is true, got none"
        );
        let long = LayerNormBackwardInputs { beta, ..inputs };
        let error = run(true, long).unwrap_err().to_string();
        assert_eq!(error, "beta: expected 2 elements, got 3");
        let beta_alone = LayerNormBackwardInputs { gamma, ..long };
        let error = run(false, beta_alone).unwrap_err().to_string();
        assert_eq!(
            error,
            "beta: expected none, as use_affine is false, got a tensor"
        );
    }

    #[test]
    fn layer_norm_is_the_engine_on_every_vector() {
        for vector in of_operator("layer_norm_backward") {
            match (vector.dtype("src"), vector.dtype("mean")) {
                (DType::F32, DType::F32) => check_layer_norm::<f32>(&vector),
                (DType::F16, DType::F32) => check_layer_norm::<f16>(&vector),
                (DType::Bf16, DType::F32) => check_layer_norm::<bf16>(&vector),
                other => panic!("{}: {other:?}", vector.name),
            }
        }
    }

    fn check_layer_norm<T: Element<Sum = f32>>(vector: &Vector)
    where
        f32: ParamOf<T>,
    {
        let use_affine = vector.metadata["use_affine"] == "true";
        let begin_norm_axis = vector.metadata["begin_norm_axis"].parse().unwrap();
        let (problem, _) = vector.problem();
        let of = Tensors::<T, f32>::of(&problem);
        assert_eq!(of.gamma.is_some(), use_affine);
        let beta: Option<Vec<f32>> = use_affine.then(|| vector.tensor("beta"));
        let inputs = LayerNormBackwardInputs {
            shape: &of.shape,
            src: &of.src,
            diff_dst: &of.diff_dst,
            mean: &of.mean,
            variance: &of.variance,
            gamma: of.gamma.as_deref(),
            beta: beta.as_deref(),
        };
        let op = LayerNormBackward {
            begin_norm_axis,
            use_affine,
            epsilon: vector.epsilon() as f32,
            ..Default::default()
        };
        let options = LayerNormOptions::new(begin_norm_axis);
        let options = options.epsilon(vector.epsilon());
        for subject in subjects() {
            let what = format!("{} on {}", vector.name, subject.name);
            let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
            let layer = GpuLayerNorm::new(&subject.gpu, options.clone()).unwrap();
            let args = BackwardArgs::new(
                &of.shape,
                &of.src,
                &of.diff_dst,
                SavedRef::moments(&of.mean, &of.variance),
            );
            let args = args.gamma(inputs.gamma).beta(inputs.beta);
            assert_eq!(got, block_on(layer.backward(args)).unwrap(), "{what}");
            let operation = op.operation::<T, f32>(&of.shape).unwrap();
            let recorded = recorded(subject, &problem, &operation, true);
            assert_eq!(recorded, of_grads(&problem, &got), "{what}");
        }
    }
}

mod directml {
    use super::*;

    /// Either operator.
    fn backward<T: DataType>(
        gpu: &GpuContext,
        through: Through,
        epsilon: f32,
        inputs: GradInputs<'_, T>,
    ) -> Result<GradOutputs<T>, Error> {
        match through {
            Through::Constant => block_on(BatchNormalizationGrad { epsilon }.backward(gpu, inputs)),
            Through::Batch => {
                block_on(BatchNormalizationTrainingGrad { epsilon }.backward(gpu, inputs))
            }
        }
    }

    fn operation<T: DataType>(
        through: Through,
        epsilon: f32,
        input: &[usize],
        mean: &[usize],
    ) -> Result<Operation, Error> {
        match through {
            Through::Constant => BatchNormalizationGrad { epsilon }.operation::<T>(input, mean),
            Through::Batch => {
                BatchNormalizationTrainingGrad { epsilon }.operation::<T>(input, mean)
            }
        }
    }

    fn of_outputs<T: DataType>(problem: &Problem, outputs: &GradOutputs<T>) -> Vec<Values> {
        let scale: &[T] = &outputs.output_scale_gradient_tensor;
        let bias: &[T] = &outputs.output_bias_gradient_tensor;
        let params = [Some(scale), Some(bias)];
        values(problem, &outputs.output_gradient_tensor, params)
    }

    fn inputs<'a, T>(of: &'a Tensors<T, T>, mean_dimensions: &'a [usize]) -> GradInputs<'a, T> {
        GradInputs {
            input_dimensions: &of.shape,
            mean_dimensions,
            input_tensor: &of.src,
            input_gradient_tensor: &of.diff_dst,
            mean_tensor: &of.mean,
            variance_tensor: &of.variance,
            scale_tensor: of.gamma.as_deref().unwrap(),
        }
    }

    #[test]
    fn vectors() {
        let mut tested = 0;
        for vector in of_operator("batch_norm_backward") {
            if vector.metadata["data_format"] != "broadcast" {
                continue;
            }
            tested += 1;
            match (vector.dtype("src"), vector.dtype("mean")) {
                (DType::F32, DType::F32) => check::<f32>(&vector),
                (DType::F16, DType::F16) => check::<f16>(&vector),
                other => panic!("{}: {other:?}", vector.name),
            }
        }
        assert!(tested >= 5, "only {tested} vectors");
    }

    fn check<T: DataType>(vector: &Vector) {
        let (problem, want) = vector.problem();
        let of = Tensors::<T, T>::of(&problem);
        let (Pass::Backward(backward), Norm::Batch(Channels::Broadcast(sizes))) =
            (problem.operation.pass, &problem.operation.norm)
        else {
            panic!("{}", vector.name);
        };
        for subject in subjects() {
            let epsilon = vector.epsilon() as f32;
            let inputs = inputs(&of, sizes);
            let got = self::backward(&subject.gpu, backward.through, epsilon, inputs);
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&of_outputs(&problem, &got.unwrap()), &want, &what);
        }
    }

    /// Parameters that vary only along axis 1 are those of NCX.
    fn check_against_ncx<T: DataType>() {
        for through in [Through::Constant, Through::Batch] {
            let mut ncx = batch_norm_gradient::<T, T>(&[3, 5, 7, 2], DataFormat::Ncx);
            ncx.pass = Backward::default().with_through(through).into();
            let problem = Problem::random(&ncx, 3);
            let of = Tensors::<T, T>::of(&problem);
            let inputs = inputs(&of, &[1, 5, 1, 1]);
            let epsilon = ncx.epsilon as f32;
            for subject in subjects() {
                let what = format!("{through:?} {} on {}", T::DTYPE, subject.name);
                let host = backward(&subject.gpu, through, epsilon, inputs).unwrap();
                let host = of_outputs(&problem, &host);
                assert!(host == problem.run(subject).unwrap(), "{what}");
                let operation =
                    operation::<T>(through, epsilon, &of.shape, inputs.mean_dimensions).unwrap();
                let recorded = recorded(subject, &problem, &operation, false);
                assert!(host == recorded, "{what}");
            }
        }
    }

    #[test]
    fn one_kept_axis_is_the_engines_ncx_and_the_plan_records_the_same() {
        check_against_ncx::<f32>();
        check_against_ncx::<f16>();
    }

    /// Statistics of other data, so that the two gradients differ; computed by hand.
    #[test]
    fn the_two_operators_differ_in_what_flows_through_the_statistics() {
        let inputs = GradInputs {
            input_dimensions: &[2, 2],
            mean_dimensions: &[1, 2],
            input_tensor: &[1.0_f32, 2.0, 3.0, 6.0],
            input_gradient_tensor: &[4.0, 1.0, 0.0, 1.0],
            mean_tensor: &[2.0, 4.0],
            variance_tensor: &[0.75, 3.75],
            scale_tensor: &[3.0, 2.0],
        };
        for subject in subjects() {
            let what = &subject.name;
            let run = |through| backward(&subject.gpu, through, 0.25, inputs).unwrap();
            let constant = run(Through::Constant);
            let output = [12.0, 1.0, 0.0, 1.0];
            assert_near(&constant.output_gradient_tensor, &output, 1e-6, 0.0, what);
            let batch = run(Through::Batch);
            assert_near(&batch.output_gradient_tensor, &[0.0; 4], 0.0, 1e-5, what);
            for outputs in [constant, batch] {
                let scale = outputs.output_scale_gradient_tensor;
                assert_near(&scale, &[-4.0, 0.0], 1e-6, 1e-6, what);
                assert_eq!(outputs.output_bias_gradient_tensor, [4.0, 2.0], "{what}");
            }
        }
    }

    #[test]
    fn a_size_that_does_not_broadcast_is_named() {
        for through in [Through::Constant, Through::Batch] {
            let error = operation::<f32>(through, 1e-5, &[4, 6], &[1, 5]).unwrap_err();
            assert_eq!(
                error.to_string(),
                "parameters: expected size 1 or 6 along axis 1, got 5"
            );
        }
    }
}

mod ngraph {
    use super::*;
    use crate::common::errors::says;

    fn inputs<'a, T>(of: &'a Tensors<T, T>, beta: &'a [T]) -> BackpropInputs<'a, T> {
        BackpropInputs {
            shape: &of.shape,
            input: &of.src,
            gamma: of.gamma.as_deref().unwrap(),
            beta,
            mean: &of.mean,
            variance: &of.variance,
            normalized_delta: &of.diff_dst,
        }
    }

    fn of_outputs<T: Element>(problem: &Problem, outputs: &BackpropOutputs<T>) -> Vec<Values> {
        let params: [&[T]; 2] = [&outputs.gamma_delta, &outputs.beta_delta];
        values(problem, &outputs.input_delta, params.map(Some))
    }

    #[test]
    fn vectors() {
        let mut tested = 0;
        for vector in of_operator("batch_norm_backward") {
            let metadata = |key: &str| vector.metadata[key].as_str();
            if (metadata("data_format"), metadata("statistics")) != ("NCX", "batch")
                || !vector.has("gamma")
                || vector.dtype("src") != vector.dtype("mean")
            {
                continue;
            }
            tested += 1;
            match vector.dtype("src") {
                DType::F32 => check::<f32>(&vector),
                DType::F64 => check::<f64>(&vector),
                other => panic!("{}: {other}", vector.name),
            }
        }
        assert!(tested >= 8, "only {tested} vectors");
    }

    fn check<T: ParamOf<T>>(vector: &Vector) {
        let (problem, want) = vector.problem();
        let of = Tensors::<T, T>::of(&problem);
        let op = BatchNormTrainingBackprop {
            epsilon: vector.epsilon(),
        };
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            let inputs = inputs(&of, &of.mean); // any beta
            let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&of_outputs(&problem, &got), &want, &what);
        }
    }

    /// The engine's bits, on the host and recorded, whatever beta contains.
    fn check_type<T: ParamOf<T>>() {
        let by_hand = batch_norm_gradient::<T, T>(&[3, 5, 7], DataFormat::Ncx);
        let problem = Problem::random(&by_hand, 4);
        let of = Tensors::<T, T>::of(&problem);
        let op = BatchNormTrainingBackprop {
            epsilon: by_hand.epsilon,
        };
        let operation = op.operation::<T>(&of.shape).unwrap();
        assert_eq!(operation, by_hand);
        let betas = [
            Random::new(5).vec(5, 1.0, 0.0),
            vec![T::from_f64(f64::NAN); 5],
        ];
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            let what = format!("{} on {}", T::DTYPE, subject.name);
            let engine = problem.run(subject).unwrap();
            for beta in &betas {
                let got = block_on(op.backward(&subject.gpu, inputs(&of, beta))).unwrap();
                assert!(of_outputs(&problem, &got) == engine, "{what}");
            }
            let recorded = recorded(subject, &problem, &operation, false);
            assert!(recorded == engine, "{what}");
        }
    }

    #[test]
    fn every_element_type_is_the_engine_and_the_plan_records_the_same() {
        check_type::<f32>();
        check_type::<f16>();
        check_type::<bf16>();
        check_type::<f64>();
    }

    #[test]
    fn betas_length_is_checked() {
        let gpu = &subjects()[0].gpu;
        let operation = batch_norm_gradient::<f32, f32>(&[3, 5, 7], DataFormat::Ncx);
        let of = Tensors::<f32, f32>::of(&Problem::random(&operation, 6));
        let op = BatchNormTrainingBackprop { epsilon: 1e-5 };
        let backward = |beta: &[f32]| block_on(op.backward(gpu, inputs(&of, beta)));
        let error = backward(&[0.0; 4]).unwrap_err();
        says(&error, &["beta: expected 5 elements", "got 4"]);
        assert!(backward(&[0.0; 5]).is_ok());
    }

    /// nGraph's own test of the operator, `batch_norm_bprop_n4c3h2w2`, with its tolerances. All gradients are 20, so
    /// input_delta and gamma_delta are only rounding errors around 0.
    #[test]
    fn as_ngraph_prints_it() {
        #[rustfmt::skip]
        let input = [
            10.763319, 11.511783, 10.310182, 12.299302, 14.176267, 14.634985, 13.634945,
            13.842482, 11.346025, 13.220146, 10.4668665, 10.39843, 12.948069, 11.716702,
            14.944381, 13.132366, 13.408896, 12.761284, 11.3443, 11.866297, 11.11464, 10.932213,
            11.95324, 10.965812, 13.054555, 14.414042, 13.111694, 11.2655945, 10.899652,
            14.082022, 11.126858, 12.584286, 12.592479, 13.001875, 12.663102, 10.06655, 12.620486,
            14.4794235, 13.849506, 10.614259, 11.479363, 13.060118, 13.630691, 12.317488,
            13.845552, 10.958155, 12.789333, 12.753891,
        ];
        #[rustfmt::skip]
        let input_delta = [
            8.170516e-6, 4.7757667e-6, 1.0225776e-5, 1.2038753e-6, -1.7386852e-6, 3.8463277e-6,
            -1.0793205e-5, -2.5745896e-6, -2.221667e-6, -8.38779e-6, -2.4808298e-6, 5.892384e-6,
            -2.5289512e-7, -8.684335e-6, -5.827267e-6, 8.846597e-6, 3.039441e-5, 4.054809e-5,
            1.8412316e-5, 2.3006118e-5, 1.3408759e-5, -9.260726e-7, -3.2290845e-5, -2.0736512e-5,
            -4.2133095e-5, 2.830831e-5, -3.710391e-5, -4.8439065e-6, -2.9301238e-5, 5.688581e-6,
            1.8318146e-5, -1.0749451e-5, -2.324291e-6, 6.929148e-6, -6.6651232e-6, -7.0030283e-6,
            -3.4667519e-6, -4.3674836e-6, 6.738222e-7, -4.20159e-6, 3.8300504e-6, 5.8514374e-6,
            4.1787525e-6, -8.641678e-6, 1.001708e-5, -4.2393967e-6, 4.802017e-6, 4.6270206e-6,
        ];
        let inputs = BackpropInputs {
            shape: &[4, 3, 2, 2],
            input: &input,
            gamma: &[2.0_f32; 3],
            beta: &[1.0; 3],
            mean: &[12.564729, 12.803122, 11.816769],
            variance: &[1.9455764, 1.3277245, 1.2816359],
            normalized_delta: &[20.0; 48],
        };
        let op = BatchNormTrainingBackprop { epsilon: 0.001 };
        for subject in subjects() {
            let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
            let what = &subject.name;
            assert_near(&got.input_delta, &input_delta, 1e-3, 1e-4, what);
            let gamma_delta = [7.0631504e-5, -0.00023528934, -5.0663948e-5];
            assert_near(&got.gamma_delta, &gamma_delta, 1e-2, 1e-3, what);
            assert_eq!(got.beta_delta, [320.0; 3], "{what}");
        }
    }
}

/// DirectML's document allows 0; no operator here does.
#[test]
fn epsilon_zero_is_refused_by_every_operator() {
    let refused = |operation: Result<Operation, Error>| {
        let error = operation.unwrap_err();
        assert!(matches!(error, Error::Epsilon { got: 0.0, .. }), "{error}");
    };
    refused(BatchNormTrainingBackward::new(0.0).operation::<f32, f32>(&[2, 3], false));
    let directml = (&[2, 3], &[1, 3]);
    let grad = BatchNormalizationGrad { epsilon: 0.0 };
    refused(grad.operation::<f32>(directml.0, directml.1));
    let training_grad = BatchNormalizationTrainingGrad { epsilon: 0.0 };
    refused(training_grad.operation::<f32>(directml.0, directml.1));
    refused(BatchNormTrainingBackprop { epsilon: 0.0 }.operation::<f32>(&[2, 3]));
    let layer_norm = LayerNormBackward {
        epsilon: 0.0,
        ..Default::default()
    };
    refused(layer_norm.operation::<f32, f32>(&[2, 3]));
}

/// Types that threads may share, and futures that can be sent to any executor's threads.
#[test]
fn threads_share_what_there_is() {
    fn assert_send(_: impl Future + Send) {}
    fn assert_shared<T: Send + Sync + 'static>() {}
    assert_shared::<GpuContext>();
    assert_shared::<GpuBatchNorm>();
    assert_shared::<GpuLayerNorm>();
    assert_shared::<Operation>();
    assert_shared::<Plan>();
    assert_shared::<Bound>();
    assert_shared::<Error>();
    let gpu = &subjects()[0].gpu;
    let batch_norm = BatchNormTrainingBackwardInputs::<f32, f32> {
        shape: &[],
        src: &[],
        diff_dst: &[],
        mean: &[],
        variance: &[],
        gamma: None,
    };
    assert_send(BatchNormTrainingBackward::new(1e-5).backward(gpu, batch_norm));
    let layer_norm = LayerNormBackwardInputs::<f32, f32> {
        shape: &[],
        src: &[],
        diff_dst: &[],
        mean: &[],
        variance: &[],
        gamma: None,
        beta: None,
    };
    assert_send(LayerNormBackward::default().backward(gpu, layer_norm));
    let directml = GradInputs::<f32> {
        input_dimensions: &[],
        mean_dimensions: &[],
        input_tensor: &[],
        input_gradient_tensor: &[],
        mean_tensor: &[],
        variance_tensor: &[],
        scale_tensor: &[],
    };
    assert_send(BatchNormalizationGrad { epsilon: 1e-5 }.backward(gpu, directml));
    assert_send(BatchNormalizationTrainingGrad { epsilon: 1e-5 }.backward(gpu, directml));
    let ngraph = BackpropInputs::<f64> {
        shape: &[],
        input: &[],
        gamma: &[],
        beta: &[],
        mean: &[],
        variance: &[],
        normalized_delta: &[],
    };
    assert_send(BatchNormTrainingBackprop { epsilon: 1e-5 }.backward(gpu, ngraph));
}
