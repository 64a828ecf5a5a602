#![no_main]

use safetensors::SafeTensors;
use wgpu_norm::Parameters;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    if let Ok(file) = SafeTensors::deserialize(file) {
        let prefixes = file
            .names()
            .into_iter()
            .filter_map(|name| name.rsplit_once('.'));
        for prefix in prefixes.map(|(prefix, _)| prefix).chain([""]) {
            if let Ok(parameters) = Parameters::<f32>::load(&file, prefix) {
                let _ = parameters.tensors(prefix);
            }
        }
    }
});
