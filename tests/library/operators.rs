//! The operators under the documents' own names: their vectors, the numbers that the tests of other
//! implementations print, and the same bits as the engine that they stand on.

use crate::common::buffers::{Buffers, Room, first, submit};
use crate::common::data::{
    Case, FORMATS, Random, assert_close, bits, in_format, options_in, to_f64,
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
use wgpu_norm::reference::{BatchNorm, Gradients};
use wgpu_norm::{
    Backward, BatchNormOptions, Bound, BufferRange, Channels, DType, DTypes, DataFormat, Element,
    Error, GpuBatchNorm, GpuContext, GpuLayerNorm, Grads, LayerNormBackwardArgs, LayerNormOptions,
    Norm, Operation, ParamGrads, ParamOf, Plan, Statistics, Tensor,
};

/// Numbers that others print, within a relative and an absolute distance.
fn assert_near(got: &[f32], want: &[f32], relative: f32, absolute: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= absolute + relative * want.abs();
        assert!(near, "{what}: {got} at {index}, not {want}");
    }
}

/// A file's answers, with the scales that the tolerance is made of.
fn expected(vector: &Vector, reference: Gradients) -> Gradients {
    Gradients {
        diff_src: vector.tensor("expected.diff_src"),
        diff_gamma: vector.tensor("expected.diff_gamma"),
        diff_beta: vector.tensor("expected.diff_beta"),
        ..reference
    }
}

/// What an operator's plan leaves in the buffers of a case.
fn recorded<T: Element, P: ParamOf<T>>(
    subject: &Subject,
    case: &Case<T, P>,
    operation: &Operation,
) -> Grads<T, P> {
    let buffers = Buffers::new(subject, case, Room::Exact);
    let of = |tensor, buffer: &Option<wgpu::Buffer>| Some((tensor, buffer.clone()?));
    let tensors = [
        Some((Tensor::Src, buffers.src.clone())),
        Some((Tensor::DiffDst, buffers.diff_dst.clone())),
        Some((Tensor::Mean, buffers.mean.clone())),
        Some((Tensor::Variance, buffers.variance.clone())),
        of(Tensor::Gamma, &buffers.gamma),
        Some((Tensor::DiffSrc, buffers.diff_src.clone())),
        of(Tensor::DiffGamma, &buffers.diff_gamma),
        of(Tensor::DiffBeta, &buffers.diff_beta),
    ];
    let tensors: Vec<_> = tensors.into_iter().flatten().collect();
    let ranges: Vec<_> = tensors.iter().map(|(t, b)| (*t, b.into())).collect();
    record(subject, operation, &ranges);
    buffers.results(subject, case)
}

fn record(subject: &Subject, operation: &Operation, ranges: &[(Tensor, BufferRange<'_>)]) {
    let plan = operation.plan(subject.gpu.profile()).unwrap();
    submit(subject, &plan.bind(&subject.gpu, ranges).unwrap());
}

/// What a layer norm's plan leaves in buffers that end with the tensors' last words, diff_src over diff_dst.
fn recorded_layer_norm<T: Element, P: ParamOf<T>>(
    subject: &Subject,
    operation: &Operation,
    inputs: &LayerNormBackwardInputs<'_, T, P>,
) -> Grads<T, P> {
    fn tensor<E: Element>(subject: &Subject, values: &[E]) -> wgpu::Buffer {
        let mut bytes = bytemuck::cast_slice(values).to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0xff);
        subject.buffer(bytes.len() as u64, &bytes)
    }
    let src = tensor(subject, inputs.src);
    let diff_src = tensor(subject, inputs.diff_dst);
    let mean = tensor(subject, inputs.mean);
    let variance = tensor(subject, inputs.variance);
    let gamma = inputs.gamma.map(|gamma| tensor(subject, gamma));
    let plan = operation.plan(subject.gpu.profile()).unwrap();
    let output = |tensor| {
        let buffers = plan.buffers();
        let used = buffers.iter().find(|used| used.tensor == tensor)?;
        Some(subject.buffer(used.bytes, &[]))
    };
    let (diff_gamma, diff_beta) = (output(Tensor::DiffGamma), output(Tensor::DiffBeta));
    let ranges = [
        Some((Tensor::Src, (&src).into())),
        Some((Tensor::DiffDst, (&diff_src).into())),
        Some((Tensor::Mean, (&mean).into())),
        Some((Tensor::Variance, (&variance).into())),
        gamma.as_ref().map(|buffer| (Tensor::Gamma, buffer.into())),
        Some((Tensor::DiffSrc, (&diff_src).into())),
        diff_gamma
            .as_ref()
            .map(|buffer| (Tensor::DiffGamma, buffer.into())),
        diff_beta
            .as_ref()
            .map(|buffer| (Tensor::DiffBeta, buffer.into())),
    ];
    let ranges: Vec<_> = ranges.into_iter().flatten().collect();
    record(subject, operation, &ranges);
    let params = |buffer: &wgpu::Buffer| {
        let count = inputs.gamma.map_or(0, <[P]>::len);
        first(&subject.read(buffer), count)
    };
    let diff_src = subject.read(&diff_src);
    let behind = &diff_src[size_of_val(inputs.src)..];
    assert!(behind.iter().all(|byte| *byte == 0), "{behind:?}");
    Grads {
        diff_src: first(&diff_src, inputs.src.len()),
        diff_gamma: diff_gamma.as_ref().map(params),
        diff_beta: diff_beta.as_ref().map(params),
        diff_residual: None,
    }
}

mod onednn {
    use super::*;

    fn op(options: BatchNormOptions) -> BatchNormTrainingBackward {
        assert_eq!(options.statistics, Through::Batch);
        BatchNormTrainingBackward {
            epsilon: options.epsilon as f32,
            data_format: options.data_format,
            outputs: match options.param_grads {
                ParamGrads::Both => BatchNormOutputs::All,
                ParamGrads::Neither => BatchNormOutputs::DiffSrc,
                ParamGrads::Frozen => panic!("the document has none"),
            },
        }
    }

    fn inputs<T: Element, P: ParamOf<T>>(
        case: &Case<T, P>,
    ) -> BatchNormTrainingBackwardInputs<'_, T, P> {
        BatchNormTrainingBackwardInputs {
            shape: &case.shape,
            src: &case.src,
            diff_dst: &case.diff_dst,
            mean: &case.mean,
            variance: &case.variance,
            gamma: case.gamma.as_deref(),
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
            let data_format = match vector.metadata["data_format"].as_str() {
                "NCX" => DataFormat::Ncx,
                "NXC" => DataFormat::Nxc,
                _ => continue,
            };
            if vector.metadata["statistics"] != "batch" {
                continue;
            }
            tested += 1;
            match (vector.dtype("src"), vector.dtype("mean")) {
                (DType::F32, DType::F32) => check_batch_norm::<f32, f32>(&vector, data_format),
                (DType::F16, DType::F32) => check_batch_norm::<f16, f32>(&vector, data_format),
                (DType::Bf16, DType::F32) => check_batch_norm::<bf16, f32>(&vector, data_format),
                (DType::Bf16, DType::Bf16) => check_batch_norm::<bf16, bf16>(&vector, data_format),
                (DType::F64, DType::F64) => tested -= 1, // nGraph's
                other => panic!("{}: {other:?}", vector.name),
            }
        }
        assert!(tested >= 15, "only {tested} vectors");
    }

    fn check_batch_norm<T: Element, P: ParamOf<T>>(vector: &Vector, data_format: DataFormat) {
        let case = Case::<T, P> {
            shape: vector.shape("src"),
            options: BatchNormOptions {
                data_format,
                ..BatchNormOptions::new(vector.epsilon())
            },
            src: vector.tensor("src"),
            diff_dst: vector.tensor("diff_dst"),
            mean: vector.tensor("mean"),
            variance: vector.tensor("variance"),
            gamma: vector.has("gamma").then(|| vector.tensor("gamma")),
        };
        let want = expected(vector, case.reference());
        for subject in subjects() {
            let got = block_on(op(case.options).backward(&subject.gpu, inputs(&case))).unwrap();
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&got, &want, ParamGrads::Both, &what);
        }
    }

    /// The document's rule, and its opposite, which is not the document's.
    #[test]
    fn gamma_is_ignored_without_its_gradient_and_counts_where_it_is_frozen() {
        for data_format in FORMATS {
            let options = options_in(data_format);
            let shape = in_format(&[4, 7, 33], data_format);
            let case = Case::<f32, f32>::random(&shape, options, 1);
            let without = BatchNormTrainingBackwardInputs {
                gamma: None,
                ..inputs(&case)
            };
            let all = op(options);
            let alone = BatchNormTrainingBackward {
                outputs: BatchNormOutputs::DiffSrc,
                ..all
            };
            let frozen = BatchNormOptions {
                param_grads: ParamGrads::Frozen,
                ..options
            };
            for subject in subjects() {
                let what = &subject.name;
                let backward = |op: BatchNormTrainingBackward, args| {
                    block_on(op.backward(&subject.gpu, args)).unwrap()
                };
                let ignored = backward(alone, inputs(&case));
                assert_eq!(ignored.diff_gamma, None, "{what}");
                assert_eq!(ignored.diff_beta, None, "{what}");
                let ungiven = backward(alone, without);
                assert!(bits(&ignored) == bits(&ungiven), "{what}");
                let scaled = backward(all, inputs(&case));
                assert!(bits(&ignored)[0] != bits(&scaled)[0], "{what}");
                let unscaled = backward(all, without);
                assert!(bits(&ignored)[0] == bits(&unscaled)[0], "{what}");

                let layer = GpuBatchNorm::new(&subject.gpu, frozen).unwrap();
                let frozen = block_on(layer.backward_with_statistics(case.args())).unwrap();
                assert_eq!(frozen.diff_gamma, None, "{what}");
                assert_eq!(frozen.diff_beta, None, "{what}");
                assert!(bits(&frozen)[0] == bits(&scaled)[0], "{what}");
            }
        }
    }

    fn batch_norm_is_the_engine_and_its_plan_records_the_same<T: Element, P: ParamOf<T>>() {
        for param_grads in [ParamGrads::Both, ParamGrads::Neither] {
            for data_format in FORMATS {
                let options = BatchNormOptions {
                    epsilon: 1.0 / 1024.0, // the same in f32 and f64
                    param_grads,
                    ..options_in(data_format)
                };
                let shape = in_format(&[3, 5, 7], data_format);
                let with = Case::<T, P>::random(&shape, options, 2);
                let without = Case {
                    gamma: None,
                    ..with.clone()
                };
                for case in [with, without] {
                    for subject in subjects().iter().filter(|s| s.takes::<T>()) {
                        check(subject, &case);
                    }
                }
            }
        }
    }

    every_pair!(batch_norm_is_the_engine_and_its_plan_records_the_same);

    fn check<T: Element, P: ParamOf<T>>(subject: &Subject, case: &Case<T, P>) {
        let what = format!("{:?} {} on {}", case.options, T::DTYPE, subject.name);
        let op = op(case.options);
        let host = block_on(op.backward(&subject.gpu, inputs(case))).unwrap();
        let engine = case.run(subject).unwrap();
        assert!(bits(&host) == bits(&engine), "{what}");
        let operation = op.operation::<T, P>(&case.shape, case.gamma.is_some());
        let operation = operation.unwrap();
        let norm = Norm::Batch(Channels::Axis(case.options.data_format));
        let pass = Backward::default().with_param_grads(case.options.param_grads);
        let types = DTypes::from((T::DTYPE, P::DTYPE)).with_statistics(P::DTYPE);
        let by_hand = Operation::new(norm, pass, &case.shape, types)
            .with_epsilon(case.options.epsilon)
            .with_params(case.gamma.is_some(), false);
        assert_eq!(operation, by_hand, "{what}");
        let recorded = recorded(subject, case, &operation);
        assert!(bits(&recorded) == bits(&host), "{what}");
    }

    /// oneDNN's own test of the operator, `BatchNormBackpropFp32`. Its epsilon is 0, which we refuse;
    /// one that leaves 1.25 as it is does the same.
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

    /// oneDNN's own test of the operator, `LayerNormBackpropFp32`: statistics that are not src's, and
    /// variance + epsilon a power of four.
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
        // Where no other output is asked for, gamma counts all the same.
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
                let recorded = recorded_layer_norm(subject, &operation, &inputs);
                assert_eq!(recorded, got, "{what}");
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
                (DType::F32, DType::F32) => check_layer_norm::<f32, f32>(&vector),
                (DType::F16, DType::F32) => check_layer_norm::<f16, f32>(&vector),
                (DType::Bf16, DType::F32) => check_layer_norm::<bf16, f32>(&vector),
                other => panic!("{}: {other:?}", vector.name),
            }
        }
    }

    fn check_layer_norm<T: Element, P: ParamOf<T>>(vector: &Vector) {
        let use_affine = vector.metadata["use_affine"] == "true";
        let begin_norm_axis = vector.metadata["begin_norm_axis"].parse().unwrap();
        let shape = vector.shape("src");
        let (src, diff_dst) = (vector.tensor::<T>("src"), vector.tensor("diff_dst"));
        let (mean, variance) = (vector.tensor::<P>("mean"), vector.tensor("variance"));
        let gamma = use_affine.then(|| vector.tensor("gamma"));
        let beta = use_affine.then(|| vector.tensor("beta"));
        let args = LayerNormBackwardArgs {
            shape: &shape,
            src: &src,
            diff_dst: &diff_dst,
            mean: &mean,
            variance: &variance,
            gamma: gamma.as_deref(),
            beta: beta.as_deref(),
        };
        let inputs = LayerNormBackwardInputs {
            shape: &shape,
            src: &src,
            diff_dst: &diff_dst,
            mean: &mean,
            variance: &variance,
            gamma: gamma.as_deref(),
            beta: beta.as_deref(),
        };
        let op = LayerNormBackward {
            begin_norm_axis,
            use_affine,
            epsilon: vector.epsilon() as f32,
            ..Default::default()
        };
        let options = LayerNormOptions {
            begin_norm_axis,
            use_affine,
            epsilon: vector.epsilon(),
            ..Default::default()
        };
        for subject in subjects() {
            let what = format!("{} on {}", vector.name, subject.name);
            let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
            let layer = GpuLayerNorm::new(&subject.gpu, options).unwrap();
            let want = block_on(layer.backward_with_statistics(args)).unwrap();
            assert_eq!(got, want, "{what}");
            let operation = op.operation::<T, P>(&shape).unwrap();
            let recorded = recorded_layer_norm(subject, &operation, &inputs);
            assert_eq!(recorded, want, "{what}");
        }
    }
}

mod directml {
    use super::*;

    /// Either operator.
    fn backward<T: DataType>(
        gpu: &GpuContext,
        statistics: Statistics,
        epsilon: f32,
        inputs: GradInputs<'_, T>,
    ) -> Result<GradOutputs<T>, Error> {
        match statistics {
            Through::Constant => block_on(BatchNormalizationGrad { epsilon }.backward(gpu, inputs)),
            Through::Batch => {
                block_on(BatchNormalizationTrainingGrad { epsilon }.backward(gpu, inputs))
            }
        }
    }

    fn operation<T: DataType>(
        statistics: Statistics,
        epsilon: f32,
        input: &[usize],
        mean: &[usize],
    ) -> Result<Operation, Error> {
        match statistics {
            Through::Constant => BatchNormalizationGrad { epsilon }.operation::<T>(input, mean),
            Through::Batch => {
                BatchNormalizationTrainingGrad { epsilon }.operation::<T>(input, mean)
            }
        }
    }

    fn grads<T>(outputs: GradOutputs<T>) -> Grads<T, T> {
        Grads {
            diff_src: outputs.output_gradient_tensor,
            diff_gamma: Some(outputs.output_scale_gradient_tensor),
            diff_beta: Some(outputs.output_bias_gradient_tensor),
            diff_residual: None,
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
        let statistics = match vector.metadata["statistics"].as_str() {
            "batch" => Through::Batch,
            "constant" => Through::Constant,
            other => panic!("{other}"),
        };
        let [input, gradient, mean, variance, scale] =
            ["src", "diff_dst", "mean", "variance", "gamma"].map(|name| vector.tensor::<T>(name));
        let (input_dimensions, mean_dimensions) = (vector.shape("src"), vector.shape("mean"));
        let kept: Vec<bool> = (input_dimensions.iter().zip(&mean_dimensions))
            .map(|(input, mean)| input == mean)
            .collect();
        let reference = BatchNorm {
            shape: &input_dimensions,
            channel_axes: &kept,
            src: &to_f64(&input),
            diff_dst: &to_f64(&gradient),
            mean: &to_f64(&mean),
            variance: &to_f64(&variance),
            gamma: Some(&to_f64(&scale)),
            epsilon: vector.epsilon(),
            statistics,
            param_grads: ParamGrads::Both,
        };
        let want = expected(vector, reference.backward().unwrap());
        let inputs = GradInputs {
            input_dimensions: &input_dimensions,
            mean_dimensions: &mean_dimensions,
            input_tensor: &input,
            input_gradient_tensor: &gradient,
            mean_tensor: &mean,
            variance_tensor: &variance,
            scale_tensor: &scale,
        };
        for subject in subjects() {
            let epsilon = vector.epsilon() as f32;
            let got = backward(&subject.gpu, statistics, epsilon, inputs).unwrap();
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&grads(got), &want, ParamGrads::Both, &what);
        }
    }

    /// Parameters that vary along axis 1 alone are those of NCX.
    fn check_against_ncx<T: DataType>() {
        for statistics in [Through::Constant, Through::Batch] {
            let options = BatchNormOptions {
                statistics,
                ..options_in(DataFormat::Ncx)
            };
            let case = Case::<T, T>::random(&[3, 5, 7, 2], options, 3);
            let mean_dimensions = [1, 5, 1, 1];
            let inputs = GradInputs {
                input_dimensions: &case.shape,
                mean_dimensions: &mean_dimensions,
                input_tensor: &case.src,
                input_gradient_tensor: &case.diff_dst,
                mean_tensor: &case.mean,
                variance_tensor: &case.variance,
                scale_tensor: case.gamma.as_deref().unwrap(),
            };
            let epsilon = options.epsilon as f32;
            for subject in subjects() {
                let what = format!("{statistics:?} {} on {}", T::DTYPE, subject.name);
                let gpu = &subject.gpu;
                let host = grads(backward(gpu, statistics, epsilon, inputs).unwrap());
                let engine = case.run(subject).unwrap();
                assert!(bits(&host) == bits(&engine), "{what}");
                let operation =
                    operation::<T>(statistics, epsilon, &case.shape, &mean_dimensions).unwrap();
                let recorded = recorded(subject, &case, &operation);
                assert!(bits(&recorded) == bits(&host), "{what}");
            }
        }
    }

    #[test]
    fn one_kept_axis_is_the_engines_ncx_and_the_plan_records_the_same() {
        check_against_ncx::<f32>();
        check_against_ncx::<f16>();
    }

    /// Statistics of other data, so that the two gradients differ: by hand.
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
            let run = |statistics| backward(&subject.gpu, statistics, 0.25, inputs).unwrap();
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
        for statistics in [Through::Constant, Through::Batch] {
            let error = operation::<f32>(statistics, 1e-5, &[4, 6], &[1, 5]).unwrap_err();
            assert_eq!(
                error.to_string(),
                "mean, variance and gamma: expected size 1 or 6 along axis 1, got 5"
            );
        }
    }
}

mod ngraph {
    use super::*;

    fn inputs<'a, T: ParamOf<T>>(case: &'a Case<T, T>, beta: &'a [T]) -> BackpropInputs<'a, T> {
        BackpropInputs {
            shape: &case.shape,
            input: &case.src,
            gamma: case.gamma.as_deref().unwrap(),
            beta,
            mean: &case.mean,
            variance: &case.variance,
            normalized_delta: &case.diff_dst,
        }
    }

    fn grads<T>(outputs: BackpropOutputs<T>) -> Grads<T, T> {
        Grads {
            diff_src: outputs.input_delta,
            diff_gamma: Some(outputs.gamma_delta),
            diff_beta: Some(outputs.beta_delta),
            diff_residual: None,
        }
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
        let case = Case::<T, T> {
            shape: vector.shape("src"),
            options: BatchNormOptions {
                data_format: DataFormat::Ncx,
                ..BatchNormOptions::new(vector.epsilon())
            },
            src: vector.tensor("src"),
            diff_dst: vector.tensor("diff_dst"),
            mean: vector.tensor("mean"),
            variance: vector.tensor("variance"),
            gamma: Some(vector.tensor("gamma")),
        };
        let op = BatchNormTrainingBackprop {
            epsilon: vector.epsilon(),
        };
        let want = expected(vector, case.reference());
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            let inputs = inputs(&case, &case.mean); // any beta
            let got = block_on(op.backward(&subject.gpu, inputs)).unwrap();
            let what = format!("{} on {}", vector.name, subject.name);
            assert_close(&grads(got), &want, ParamGrads::Both, &what);
        }
    }

    /// The engine's bits, on the host and recorded; whatever beta holds.
    fn check_type<T: ParamOf<T>>() {
        let options = options_in(DataFormat::Ncx);
        let case = Case::<T, T>::random(&[3, 5, 7], options, 4);
        let op = BatchNormTrainingBackprop {
            epsilon: options.epsilon,
        };
        let betas = [
            Random::new(5).vec(5, 1.0, 0.0),
            vec![T::from_f64(f64::NAN); 5],
        ];
        for subject in subjects().iter().filter(|s| s.takes::<T>()) {
            let what = format!("{} on {}", T::DTYPE, subject.name);
            let engine = case.run(subject).unwrap();
            for beta in &betas {
                let got = block_on(op.backward(&subject.gpu, inputs(&case, beta))).unwrap();
                assert!(bits(&grads(got)) == bits(&engine), "{what}");
            }
            let operation = op.operation::<T>(&case.shape).unwrap();
            let recorded = recorded(subject, &case, &operation);
            assert!(bits(&recorded) == bits(&engine), "{what}");
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
        let case = Case::<f32, f32>::random(&[3, 5, 7], options_in(DataFormat::Ncx), 6);
        let op = BatchNormTrainingBackprop { epsilon: 1e-5 };
        let backward = |beta: &[f32]| block_on(op.backward(gpu, inputs(&case, beta)));
        let error = Error::Length {
            tensor: "beta",
            expected: 5,
            got: 4,
        };
        assert_eq!(backward(&[0.0; 4]), Err(error));
        assert!(backward(&[0.0; 5]).is_ok());
    }

    /// nGraph's own test of the operator, `batch_norm_bprop_n4c3h2w2`, with its tolerances. All
    /// gradients are 20, so input_delta and gamma_delta are what rounding leaves of 0.
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

/// What threads may share, and futures that go to any executor's threads.
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
