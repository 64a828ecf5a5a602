//! A device's own conversions to f16 are used only where a probe has shown that they round to nearest even.

use crate::common::{Subject, subjects};
use std::slice;
use wgpu_norm::export::Kernel;
use wgpu_norm::half::f16;
use wgpu_norm::{DType, F16Encoder, GpuContext};

/// What a text, such as a probe's, makes of the numbers.
fn rounded(gpu: &GpuContext, text: &str) -> Vec<u8> {
    let device = gpu.device();
    let numbers = F16Encoder::numbers();
    let length = numbers.len() / 2;
    let buffers = [numbers, vec![0; length]].map(|bytes| gpu.upload("numbers", &bytes).unwrap());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let entry = |binding: usize| wgpu::BindGroupEntry {
        binding: binding as u32,
        resource: buffers[binding].as_entire_binding(),
    };
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[entry(0), entry(1)],
    });
    let workgroups = length as u32 / 8 / Kernel::f16_probe(F16Encoder::Integers).workgroup_size();
    let record = |encoder: &mut wgpu::CommandEncoder| {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(workgroups, 1, 1);
    };
    let read = gpu.submit_and_read(record, slice::from_ref(&buffers[1]));
    pollster::block_on(read).unwrap().remove(0)
}

fn with_f16() -> impl Iterator<Item = &'static Subject> {
    subjects()
        .iter()
        .filter(|subject| subject.gpu.supports(DType::F16))
}

#[test]
fn integers_pass_the_probe_and_a_rounding_toward_zero_does_not() {
    let integers = Kernel::f16_probe(F16Encoder::Integers).wgsl();
    let toward_zero = integers.replace(" + vec4(0xfffu) + even", "");
    assert_ne!(integers, toward_zero);
    for subject in with_f16() {
        let right = |text| F16Encoder::is_right(&rounded(&subject.gpu, text));
        assert!(right(&integers), "{}", subject.name);
        assert!(!right(&toward_zero), "{}", subject.name);
    }
}

#[test]
fn a_profile_keeps_what_its_device_has_proven() {
    for subject in with_f16() {
        let gpu = &subject.gpu;
        let software = gpu.adapter_info().device_type == wgpu::DeviceType::Cpu;
        if software {
            assert_eq!(gpu.profile().f16_encoder, F16Encoder::Integers);
        }
        let best = pollster::block_on(gpu.probe_f16());
        let casts = gpu.device().features().contains(wgpu::Features::SHADER_F16);
        let mut first = None;
        for encoder in F16Encoder::ALL {
            let compiles = encoder != F16Encoder::Cast || casts;
            let text = Kernel::f16_probe(encoder).wgsl();
            let right = compiles && F16Encoder::is_right(&rounded(gpu, &text));
            let mut profile = gpu.profile().clone();
            profile.f16_encoder = encoder;
            let kept = gpu.with_profile(profile).profile().f16_encoder;
            let expected = if right { encoder } else { F16Encoder::Integers };
            assert_eq!(kept, expected, "{}", subject.name);
            first = first.or(right.then_some(encoder));
        }
        assert_eq!(Some(best), first, "{}", subject.name);
    }
}

#[test]
fn the_numbers_tell_roundings_apart() {
    let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&F16Encoder::numbers());
    let is_right = |round: &dyn Fn(f32) -> f16| {
        let rounded = numbers
            .iter()
            .flat_map(|&number| round(number).to_le_bytes());
        F16Encoder::is_right(&rounded.collect::<Vec<_>>())
    };
    assert!(is_right(&f16::from_f32));
    let of_nan = |nan: u16| {
        move |number: f32| {
            if number.is_nan() {
                f16::from_bits(nan)
            } else {
                f16::from_f32(number)
            }
        }
    };
    // Another NaN is right, a number is not.
    assert!(is_right(&of_nan(0xfe01)));
    assert!(!is_right(&of_nan(0x7c00)));
    let toward_zero = |number: f32| {
        let near = f16::from_f32(number);
        let beyond = near.to_f32().abs() > number.abs();
        if beyond {
            f16::from_bits(near.to_bits() - 1)
        } else {
            near
        }
    };
    assert!(!is_right(&toward_zero));
    let without_subnormals = |number: f32| {
        let near = f16::from_f32(number);
        if near.is_normal() {
            near
        } else {
            f16::from_f32(near.to_f32() * 0.0)
        }
    };
    assert!(!is_right(&without_subnormals));
    // Ties away from zero, upwards, downwards; in one half of each word alone.
    let away = |number: f32| f16::from_f32(f32::from_bits(number.to_bits() | 1));
    assert!(!is_right(&away));
    assert!(!is_right(&|number: f32| if number > 0.0 {
        away(number)
    } else {
        f16::from_f32(number)
    }));
    assert!(!is_right(&|number: f32| if number < 0.0 {
        away(number)
    } else {
        f16::from_f32(number)
    }));
    for half in [0, 1] {
        let index = std::cell::Cell::new(0);
        let in_a_half = |number: f32| {
            let place = index.replace(index.get() + 1);
            if place % 2 == half {
                away(number)
            } else {
                f16::from_f32(number)
            }
        };
        assert!(!is_right(&in_a_half));
    }
    assert!(!F16Encoder::is_right(&[]));
}
