//! nGraph's operators.

use super::*;
use crate::common::data::assert_close;
use crate::common::vectors::of_operator;
use wgpu_norm::operators::ngraph::*;

#[test]
fn as_the_reference() {
    let norm = || Norm::batch(DataFormat::Ncx);
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64] {
        let types = DTypes::from(dtype).with_statistics(dtype);
        let by_hand = |pass: Pass| by_hand(norm(), pass, &[3, 5, 7], types);
        let (input, gamma, beta) = (
            ("input", Tensor::Src),
            ("gamma", Tensor::Gamma),
            ("beta", Tensor::Beta),
        );
        let (mean, variance) = (("mean", Tensor::Mean), ("variance", Tensor::Variance));
        check(
            &BatchNormTraining::new(EPSILON.into()),
            &by_hand(Forward::default().into()),
            &[input, gamma, beta],
            &[
                ("normalized", Tensor::Dst),
                ("batch_mean", Tensor::Mean),
                ("batch_variance", Tensor::Variance),
            ],
        );
        check(
            &BatchNormInference::new(EPSILON.into()),
            &by_hand(Pass::Inference),
            &[input, gamma, beta, mean, variance],
            &[("normalized", Tensor::Dst)],
        );
        // No result depends on beta.
        let delta = ("normalized_delta", Tensor::DiffDst);
        check(
            &BatchNormTrainingBackprop::new(EPSILON.into()),
            &by_hand(Backward::default().into()),
            &[input, gamma, beta, mean, variance, delta],
            &[
                ("input_delta", Tensor::DiffSrc),
                ("gamma_delta", Tensor::DiffGamma),
                ("beta_delta", Tensor::DiffBeta),
            ],
        );
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
        let (problem, want) = vector.problem();
        let given = Given::from(problem);
        let names = [
            ("input", Tensor::Src),
            ("gamma", Tensor::Gamma),
            ("beta", Tensor::Beta),
            ("mean", Tensor::Mean),
            ("variance", Tensor::Variance),
            ("normalized_delta", Tensor::DiffDst),
        ];
        let inputs = given.named(None, &names);
        let op = BatchNormTrainingBackprop::new(vector.epsilon());
        for subject in taking(vector.dtype("src")) {
            let got = block_on(op.run(&subject.gpu, &inputs)).unwrap();
            let names = [
                ("input_delta", Tensor::DiffSrc),
                ("gamma_delta", Tensor::DiffGamma),
                ("beta_delta", Tensor::DiffBeta),
            ];
            let got = values(&given.problem, &got, &names);
            assert_close(&got, &want, &format!("{} on {}", vector.name, subject.name));
        }
    }
    assert!(tested >= 8, "only {tested} vectors");
}

#[test]
fn betas_length_is_checked() {
    let gpu = &subjects()[0].gpu;
    let op = BatchNormTrainingBackprop::new(1e-5);
    let all = [
        ("input", &[2, 3][..], &[1.0; 6][..]),
        ("gamma", &[3], &[1.0; 3]),
        ("beta", &[3], &[f32::NAN; 3]),
        ("mean", &[3], &[1.0; 3]),
        ("variance", &[3], &[1.0; 3]),
        ("normalized_delta", &[2, 3], &[1.0; 6]),
    ];
    let outputs = block_on(op.run(gpu, &replaced(&all, all[0]))).unwrap();
    near(&outputs, "beta_delta", &[2.0; 3]);
    let long = replaced(&all, ("beta", &[4], &[1.0; 4]));
    let error = block_on(op.run(gpu, &long)).unwrap_err();
    says(&error, &["beta: expected 3 elements", "got 4"]);
    let other = replaced(&all, ("normalized_delta", &[3, 2], &[1.0; 6]));
    let error = block_on(op.run(gpu, &other));
    fails(error, "normalized_delta: expected shape [2, 3], got [3, 2]");
}

/// nGraph's own test of the operator, `batch_norm_bprop_n4c3h2w2`, with its tolerances. All gradients are 20, so
/// input_delta and gamma_delta are only rounding errors around 0.
#[test]
fn as_ngraph_prints_it() {
    #[rustfmt::skip]
    let input: [f32; 48] = [
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
    let inputs = Inputs::new()
        .with("input", &[4, 3, 2, 2], &input)
        .with("gamma", &[3], &[2.0_f32; 3])
        .with("beta", &[3], &[1.0_f32; 3])
        .with("mean", &[3], &[12.564729_f32, 12.803122, 11.816769])
        .with("variance", &[3], &[1.9455764_f32, 1.3277245, 1.2816359])
        .with("normalized_delta", &[4, 3, 2, 2], &[20.0_f32; 48]);
    let op = BatchNormTrainingBackprop::new(0.001);
    for subject in subjects() {
        let outputs = block_on(op.run(&subject.gpu, &inputs)).unwrap();
        assert_near(&outputs, "input_delta", &input_delta, 1e-3, 1e-4);
        let gamma_delta = [7.0631504e-5, -0.00023528934, -5.0663948e-5];
        assert_near(&outputs, "gamma_delta", &gamma_delta, 1e-2, 1e-3);
        assert_eq!(outputs.get::<f32>("beta_delta").unwrap(), [320.0; 3]);
    }
}
