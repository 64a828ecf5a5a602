#![no_main]

use wgpu_norm::Tuning;
use wgpu_norm_verify::Case;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(case) = text.parse::<Case>() {
        assert_eq!(case.to_string().parse(), Ok(case));
    }
    if let Ok(tuning) = text.parse::<Tuning>() {
        assert_eq!(tuning.to_string().parse(), Ok(tuning));
    }
});
