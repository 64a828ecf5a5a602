//! Every batch-norm vector with parameters of shape `[C]`, the three real layers included.

use crate::common::data::{Case, assert_close};
use crate::common::every_subject;
use crate::common::vectors::{Vector, of_operator};
use half::{bf16, f16};
use wgpu_norm::reference::Gradients;
use wgpu_norm::{BatchNormOptions, DType, DataFormat, Element, ParamOf, Statistics};

#[test]
fn vectors() {
    let mut tested = 0;
    for vector in of_operator("batch_norm_backward") {
        tested += match (vector.dtype("src"), vector.dtype("mean")) {
            (DType::F32, DType::F32) => check::<f32, f32>(&vector),
            (DType::F16, DType::F32) => check::<f16, f32>(&vector),
            (DType::F16, DType::F16) => check::<f16, f16>(&vector),
            (DType::Bf16, DType::F32) => check::<bf16, f32>(&vector),
            (DType::Bf16, DType::Bf16) => check::<bf16, bf16>(&vector),
            (DType::F64, DType::F64) => check::<f64, f64>(&vector),
            other => panic!("{}: {other:?}", vector.name),
        };
    }
    assert!(tested >= 16, "only {tested} vectors with [C] parameters");
}

fn check<T: Element, P: ParamOf<T>>(vector: &Vector) -> usize {
    let data_format = match vector.metadata["data_format"].as_str() {
        "NCX" => DataFormat::Ncx,
        "NXC" => DataFormat::Nxc,
        _ => return 0,
    };
    let options = BatchNormOptions {
        data_format,
        statistics: match vector.metadata["statistics"].as_str() {
            "batch" => Through::Batch,
            "constant" => Through::Constant,
            other => panic!("{other}"),
        },
        ..BatchNormOptions::new(vector.epsilon())
    };
    let case = Case::<T, P> {
        shape: vector.shape("src"),
        options,
        src: vector.tensor("src"),
        diff_dst: vector.tensor("diff_dst"),
        mean: vector.tensor("mean"),
        variance: vector.tensor("variance"),
        gamma: vector.has("gamma").then(|| vector.tensor("gamma")),
    };
    // The file's answers, with the scales that the tolerance is made of.
    let want = Gradients {
        diff_src: vector.tensor("expected.diff_src"),
        diff_gamma: vector.tensor("expected.diff_gamma"),
        diff_beta: vector.tensor("expected.diff_beta"),
        ..case.reference()
    };
    for subject in every_subject() {
        if !subject.gpu.supports(T::DTYPE) {
            println!("{}: {} is not supported", subject.name, T::DTYPE);
            continue;
        }
        let got = case.run(subject).unwrap();
        let what = format!("{} on {}", vector.name, subject.name);
        assert_close(&got, &want, options.param_grads, &what);
    }
    1
}
