#![no_main]

libfuzzer_sys::fuzz_target!(|json: &[u8]| {
    let _ = wgpu_norm_cli::readers::header(json);
});
