//! Small cases measured natively, and the report that the command reads.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use wgpu_norm::{DType, DataFormat, DeviceOptions, GpuContext};
use wgpu_norm_page::speed::{Case, Op, Set, Speed};

fn case(op: Op, gradient: bool, dtype: DType, data_format: Option<DataFormat>) -> Case {
    Case {
        set: "custom",
        op,
        gradient,
        shape: vec![4, 8, 16, 16],
        dtype,
        data_format,
    }
}

/// Two small cases, and two that cannot run: of a type that is missing here, and of more bytes than a buffer has.
fn cases(gpu: &GpuContext) -> Vec<Case> {
    let ncx = Some(DataFormat::Ncx);
    let huge = Case {
        shape: vec![1 << 20, 1 << 20],
        ..case(Op::RmsNorm, true, DType::F32, None)
    };
    let mut cases = vec![
        case(Op::BatchNorm, true, DType::F32, ncx),
        case(Op::LayerNorm, false, DType::F16, None),
        huge,
    ];
    if !gpu.supports(DType::F64) {
        cases.push(case(Op::BatchNorm, true, DType::F64, ncx));
    }
    cases
}

/// Numbers that must be finite and above 0.
const POSITIVE: [&str; 6] = [
    "time_ms",
    "wall_ms",
    "record_us",
    "record_between_us",
    "empty_submission_ms",
    "copy_gb_per_s",
];

#[test]
fn small_cases_and_their_report() {
    pollster::block_on(async {
        let gpu = GpuContext::new().await.expect("an adapter");
        let cases = cases(&gpu);
        let speed = Speed::with_cases(&gpu, cases.clone()).await;
        let mut speed = speed.expect("a clock").named("an adapter");
        assert!(speed.cases().eq(&cases));
        assert!(!speed.timing().is_empty());
        for (index, case) in cases.iter().enumerate() {
            let measured = speed.measure(index).await;
            assert_eq!(measured.is_ok(), index < 2, "{case}: {measured:?}");
        }
        assert!(speed.measure(cases.len()).await.is_err());

        let verify = json!({
            "passed": true, "words": "2 cases", "table": "| a |\n|---|\n", "details": {"seconds": 6.0},
        });
        let text = speed.report(Some(verify), "2025-01-31T12:00:00Z".to_owned());
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let rows = report["results"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        for row in rows {
            for key in POSITIVE {
                let value = row[key].as_f64();
                assert!(value.is_some_and(|value| value > 0.0), "{key}: {row}");
            }
            for model in row["models"].as_array().expect("models") {
                assert!(model["fraction_of_copy"].as_f64().is_some_and(|f| f > 0.0));
            }
        }
        // 8192 elements.
        let facts = |row: &Value| {
            let model = |model: &Value| (model["times"].as_u64(), model["bytes"].as_u64());
            let models = row["models"].as_array().expect("models").iter().map(model);
            let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
            let texts = ["op", "shape", "dtype", "data_format"].map(text);
            (texts, models.collect::<Vec<_>>())
        };
        let texts = |words: [&str; 4]| words.map(str::to_owned);
        let want = [
            (
                texts(["batch-norm", "4x8x16x16", "f32", "NCX"]),
                vec![(Some(5), Some(163_840)), (Some(3), Some(98_304))],
            ),
            (
                texts(["layer-norm-forward", "4x8x16x16", "f16", "-"]),
                vec![(Some(3), Some(49_152)), (Some(2), Some(32_768))],
            ),
        ];
        assert_eq!(rows.iter().map(facts).collect::<Vec<_>>(), want);

        let skipped = report["skipped"].as_array().expect("skipped");
        assert_eq!(skipped.len(), cases.len() - 2);
        for skipped in skipped {
            let reason = skipped["reason"].as_str();
            assert!(reason.is_some_and(|text| !text.is_empty()), "{skipped}");
        }
        let states: Vec<_> = report["parts"].as_array().expect("parts").iter().collect();
        let state = |part: &&Value| (part["kind"].clone(), part["state"].clone());
        let want = [
            (json!("verify"), json!("done")),
            (json!("bench"), json!("done")),
        ];
        assert_eq!(states.iter().map(state).collect::<Vec<_>>(), want);
        assert_eq!(report["copy_gb_per_s"], rows[0]["copy_gb_per_s"]);
        redraw(&text);
    });
}

/// The command makes its page from the report. It has no public type for it, so WGPU_NORM_COMMAND names the command.
fn redraw(report: &str) {
    let Some(command) = std::env::var_os("WGPU_NORM_COMMAND") else {
        println!("WGPU_NORM_COMMAND is not set: the command has not read the report");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("speed-report");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("report.json"), report).expect("a file");
    let redraw = Command::new(command)
        .arg("report")
        .arg(&folder)
        .arg("--redraw")
        .output()
        .expect("the command");
    let complaint = String::from_utf8_lossy(&redraw.stderr);
    assert!(redraw.status.success(), "{complaint}");
    let page = std::fs::read_to_string(folder.join("report.md")).expect("a page");
    for text in [
        "# wgpu-norm on an adapter",
        "### batch-norm NCX",
        "4×8×16×16",
    ] {
        assert!(page.contains(text), "{page}");
    }
}

#[test]
fn a_device_without_timestamps_is_timed_by_the_host() {
    pollster::block_on(async {
        let adapters = wgpu_norm::adapters(wgpu::Backends::all()).await;
        let adapter = adapters.first().expect("an adapter");
        let descriptor = wgpu::DeviceDescriptor {
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let opened = adapter.request_device(&descriptor).await;
        let (device, queue) = opened.expect("a device");
        let gpu = GpuContext::from_device(device, queue, DeviceOptions::default());
        let case = case(Op::RmsNorm, true, DType::F32, None);
        let speed = Speed::with_cases(&gpu, vec![case]).await;
        let mut speed = speed.expect("a clock");
        let timing = speed.timing();
        assert!(timing.starts_with("submission to completion"), "{timing}");
        let row = speed.measure(0).await.expect("a row");
        assert!(row.time_ms.is_finite() && row.time_ms > 0.0, "{row:?}");
    });
}

#[test]
fn lists_have_every_operator_both_ways_in_both_types() {
    for (set, count) in [(Set::Gpu, 32), (Set::Software, 24)] {
        let cases = set.cases();
        assert_eq!(cases.len(), count);
        let halves = [
            cases.iter().filter(|case| case.gradient).count(),
            cases.iter().filter(|case| case.dtype == DType::F16).count(),
        ];
        assert_eq!(halves, [count / 2; 2]);
    }
    let elements = |set: Set| set.cases().iter().map(|case| case.bytes(1)).sum::<u64>();
    assert!(elements(Set::Software) * 9 < elements(Set::Gpu));
}

/// The whole list of the adapter's kind, printed row by row; the report goes to the folder SPEED_REPORT.
#[test]
#[ignore = "takes a minute and more"]
fn the_whole_list() {
    pollster::block_on(async {
        let begin = std::time::Instant::now();
        let gpu = GpuContext::new().await.expect("an adapter");
        let mut speed = Speed::new(&gpu).await.expect("a clock");
        println!(
            "{:.1} s until the first case",
            begin.elapsed().as_secs_f64()
        );
        let cases: Vec<Case> = speed.cases().cloned().collect();
        for (index, case) in cases.iter().enumerate() {
            match speed.measure(index).await {
                Ok(row) => println!(
                    "{case}: {:.3} ms, {:.2} of {:.1} GB/s by {}",
                    row.time_ms,
                    row.models[0].fraction_of_copy.unwrap_or(f64::NAN),
                    row.copy_gb_per_s.unwrap_or(f64::NAN),
                    row.copy_kernel.unwrap_or_default(),
                ),
                Err(error) => println!("{case}: {error}"),
            }
        }
        println!("{:.1} s; {}", begin.elapsed().as_secs_f64(), speed.timing());
        if let Some(folder) = std::env::var_os("SPEED_REPORT") {
            let path = Path::new(&folder).join("report.json");
            std::fs::write(path, speed.report(None, "2025-01-31T12:00:00Z".to_owned()))
                .expect("a file");
        }
    });
}
