//! `wgpu-norm batch-norm-backward` with parameters of src's rank.

use super::*;

/// src of shape [2, 3, 4], constant statistics, variance 1, epsilon 1, and parameters of this shape; gamma is used.
fn with_params(shape: &[usize]) -> Draft {
    let count = shape.iter().product();
    Draft::good()
        .with("src", counting::<f32>(&[2, 3, 4]))
        .with("diff_dst", counting::<f32>(&[2, 3, 4]))
        .with("mean", tensor(shape, &vec![0.5_f32; count]))
        .with("variance", tensor(shape, &vec![1.0_f32; count]))
        .with("gamma", counting::<f32>(shape))
}

/// One axis of six elements, gamma 2, constant statistics.
fn of_rank_1(params: usize) -> Draft {
    Draft::good()
        .with("src", counting::<f32>(&[6]))
        .with("diff_dst", counting::<f32>(&[6]))
        .with("mean", tensor(&[params], &vec![0.0_f32; params]))
        .with("variance", tensor(&[params], &vec![1.0_f32; params]))
        .with("gamma", tensor(&[params], &vec![2.0_f32; params]))
        .attribute("statistics", "constant")
}

const BY_FLAG: [&str; 2] = ["--data-format", "broadcast"];

/// Runs a draft with `--check` and returns the shape and values of each output.
fn outputs(name: &str, draft: &Draft, arguments: &[&str]) -> Vec<(Vec<usize>, Vec<f64>)> {
    let folder = folder(&format!("broadcast-{name}"));
    let (input, output) = (folder.join("in"), folder.join("out"));
    std::fs::write(&input, draft.bytes()).unwrap();
    let arguments = [&["--check"], arguments].concat();
    assert_success(&backward(&input, &output, &arguments));
    let tensors = ["diff_src", "diff_gamma", "diff_beta"];
    let read = tensors.iter().filter_map(|t| read_shaped(&output, t));
    read.map(|(_, shape, values)| (shape, values)).collect()
}

#[test]
fn every_vector() {
    let vectors = vectors("bn_", "broadcast");
    assert!(vectors.len() >= 5, "{vectors:?}");
    for name in &vectors {
        check_vector(name, &[]);
    }
    check_vector("bn_f32_broadcast_batch", &BY_FLAG);
}

#[test]
fn recognized_by_rank() {
    for (name, params, format) in [("ncx", [1, 3, 1], "NCX"), ("nxc", [1, 1, 4], "NXC")] {
        let by_rank = outputs(name, &with_params(&params), &[]);
        let channels = params.iter().product();
        let draft = with_params(&[channels]).attribute("data_format", format);
        let by_format = outputs(name, &draft, &[]);
        for ((shape, values), (_, want)) in by_rank.iter().zip(&by_format) {
            assert_close(values, want);
            assert!(shape == &params || shape == &[2, 3, 4], "{shape:?}");
        }
    }
    // No axis kept, all axes, and a set that is not a single axis.
    for params in [[1, 1, 1], [2, 3, 4], [2, 1, 4]] {
        let results = outputs("sets", &with_params(&params), &[]);
        let shapes: Vec<&[usize]> = results.iter().map(|(shape, _)| shape.as_slice()).collect();
        assert_eq!(shapes, [&[2, 3, 4], &params, &params]);
        let by_flag = outputs("sets-flag", &with_params(&params), &BY_FLAG);
        assert_eq!(results, by_flag);
        let without = outputs("no-gamma", &with_params(&params).without("gamma"), &[]);
        assert_eq!(results[1..], without[1..]);
    }
}

#[test]
fn format_by_flag_before_metadata_before_rank() {
    let draft = || with_params(&[1, 3, 1]);
    let want = outputs("rank", &draft(), &[]);
    for format in ["broadcast", "Broadcast"] {
        let by_metadata = draft().attribute("data_format", format);
        assert_eq!(outputs("metadata", &by_metadata, &[]), want);
    }
    let against_rank = draft().attribute("data_format", "NCX");
    let fragments = ["mean: expected shape [3] (one per", "got [1, 3, 1]"];
    refuse_draft("broadcast-against-rank", &against_rank, &fragments);
    assert_eq!(outputs("flag", &against_rank, &BY_FLAG), want);
    let against_metadata = with_params(&[3]).attribute("data_format", "broadcast");
    let arguments = ["--data-format", "NCX"];
    let by_flag = outputs("against-metadata", &against_metadata, &arguments);
    assert_eq!(by_flag[0].0, want[0].0);
    assert_close(&by_flag[0].1, &want[0].1);
}

#[test]
fn rank_1_by_flag_or_metadata() {
    for params in [1, 6] {
        let draft = || of_rank_1(params);
        let by_flag = outputs("rank-1-flag", &draft(), &BY_FLAG);
        assert_close(&by_flag[0].1, &constant(1.0));
        assert_eq!(by_flag[2].0, [params]);
        let by_metadata = draft().attribute("data_format", "broadcast");
        assert_eq!(outputs("rank-1-metadata", &by_metadata, &[]), by_flag);
        let fragments = ["src: expected a rank", "--data-format broadcast", "rank 1"];
        refuse_draft("rank-1", &draft(), &fragments);
        let by_format = draft().attribute("data_format", "NCX");
        refuse_draft("rank-1-format", &by_format, &fragments);
    }
}

#[test]
fn every_pair_of_element_types() {
    fn pair<T: Element, P: Element>(supported: bool) {
        let what = format!("{} {}", T::DTYPE, P::DTYPE);
        let folder = folder(&format!("broadcast-{what}"));
        let (input, output) = (folder.join("in"), folder.join("out"));
        let draft = with_params(&[1])
            .with("src", counting::<T>(&[2, 3, 4]))
            .with("diff_dst", counting::<T>(&[2, 3, 4]))
            .with("mean", counting::<P>(&[2, 1, 4]))
            .with("variance", counting::<P>(&[2, 1, 4]))
            .with("gamma", counting::<P>(&[2, 1, 4]));
        std::fs::write(&input, draft.bytes()).unwrap();
        let result = backward(&input, &output, &["--check"]);
        if !supported {
            return assert_failure(&result, &["f64 tensors", "SHADER_F64"], &what);
        }
        assert_success(&result);
        let dtype = |path, name| read(path, name).unwrap().0;
        assert_eq!(dtype(&output, "diff_src"), dtype(&input, "src"));
        for tensor in ["diff_gamma", "diff_beta"] {
            assert_eq!(dtype(&output, tensor), dtype(&input, "mean"));
        }
    }
    let gpu = pollster::block_on(GpuContext::new()).expect("an adapter");
    pair::<f32, f32>(true);
    pair::<f16, f32>(true);
    pair::<f16, f16>(true);
    pair::<bf16, f32>(true);
    pair::<bf16, bf16>(true);
    pair::<f64, f64>(gpu.supports(DType::F64));
}

#[test]
fn a_frozen_layer_has_no_parameter_gradients() {
    let draft = with_params(&[2, 1, 4]);
    let results = outputs("param-grads", &draft, &["--param-grads", "false"]);
    assert_eq!(results.len(), 1);
}

#[test]
fn an_empty_batch_has_zeros() {
    let draft = with_params(&[1, 3, 1])
        .with("src", counting::<f32>(&[0, 3, 4]))
        .with("diff_dst", counting::<f32>(&[0, 3, 4]));
    let results = outputs("empty", &draft, &[]);
    assert_eq!(results[0], (vec![0, 3, 4], vec![]));
    assert_eq!(results[1], (vec![1, 3, 1], vec![0.0; 3]));
    assert_eq!(results[1], results[2]);
}

#[test]
fn refuses_axes() {
    for (name, shape, fragment) in [
        ("mean", [1, 2, 1], "size 1 or 3 along axis 1, got 2"),
        ("variance", [1, 3, 3], "size 1 or 4 along axis 2, got 3"),
        ("gamma", [0, 3, 1], "size 1 or 2 along axis 0, got 0"),
    ] {
        let draft = with_params(&[1, 3, 1]).with(name, counting::<f32>(&shape));
        let expected = format!("error: {name}: expected {fragment}");
        refuse_draft("broadcast-axis", &draft, &[&expected]);
    }
    let draft = with_params(&[3, 3, 1])
        .with("src", counting::<f32>(&[1, 3, 4]))
        .with("diff_dst", counting::<f32>(&[1, 3, 4]));
    let fragments = ["mean: expected size 1 along axis 0, got 3"];
    refuse_draft("broadcast-axis-of-1", &draft, &fragments);
}

#[test]
fn refuses_shapes() {
    for name in ["variance", "gamma"] {
        let draft = with_params(&[1, 3, 1]).with(name, counting::<f32>(&[1, 1, 4]));
        let expected = format!("{name}: expected shape [1, 3, 1] as mean");
        refuse_draft("broadcast-other", &draft, &[&expected, "got [1, 1, 4]"]);
    }
    for name in ["mean", "variance", "gamma"] {
        let draft = with_params(&[1, 3, 1])
            .with(name, counting::<f32>(&[3]))
            .attribute("data_format", "broadcast");
        let expected = format!("{name}: expected shape [2, 3, 4] with 1 along the axes");
        refuse_draft("broadcast-rank", &draft, &[&expected, "got [3]"]);
    }
    for rank in [0, 9] {
        let shape = vec![1; rank];
        let draft = with_params(&shape)
            .with("src", counting::<f32>(&shape))
            .with("diff_dst", counting::<f32>(&shape))
            .attribute("data_format", "broadcast");
        let got = format!("got rank {rank}");
        let fragments = ["src: expected a rank from 1 to 8", &got];
        refuse_draft("broadcast-rank-range", &draft, &fragments);
    }
}
