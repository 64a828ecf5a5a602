//! Checks what the manifest says of the kernels against their texts, as naga, `spirv-val` and `glslangValidator` read
//! them. Everything here goes through [`Kernel::ALL`], so a new entry is tested without further ado.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod asked;
mod bodies;
mod directx;
mod mesa;
mod planned;
mod variants;

use super::describe::Value;
use super::files::{self, PARTS};
use super::params::Params;
use super::source::{SHARES_RESULTS, SHARES_WORDS, SUBGROUPS};
use super::{Access, Body, Constant, Entry, Kernel, Uniforms, Variant, sums};
use crate::element::DType;
use crate::f16_encoder::F16Encoder;
use crate::tensor::Tensor;
use asked::{asked, traits};
use naga::valid::{Capabilities, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, ArraySize, Module, Scalar, ShaderStage, StorageAccess, TypeInner, back};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use variants::Target;

/// Runs a check on every variant, on all cores, and fails with all complaints at once.
fn check_all(variants: &[Variant], check: impl Fn(&Variant) -> Result<(), String> + Sync) {
    assert!(!variants.is_empty());
    let complaints = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(variant) = variants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(complaint) = check(variant) {
                        let complaint = format!("{}: {complaint}", variant.label());
                        complaints.lock().unwrap().push(complaint);
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    let first: Vec<_> = complaints.iter().take(20).map(String::as_str).collect();
    assert!(
        complaints.is_empty(),
        "{} of {} variants:\n{}",
        complaints.len(),
        variants.len(),
        first.join("\n")
    );
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A variant as naga understands it.
struct Parsed {
    module: Module,
    info: ModuleInfo,
}

impl Parsed {
    fn new(variant: &Variant) -> Result<Self, String> {
        let text = variant.wgsl();
        let module =
            naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
        // No more than these, since an adapter need not have more. The last is for unpack2x16float, a downlevel flag of
        // wgpu's, which every browser has, and every native driver but some old lavapipe.
        let mut capabilities = Capabilities::empty();
        capabilities.set(Capabilities::FLOAT64, variant.accumulator() == DType::F64);
        let long_words = variant.access == Access::LongWords;
        capabilities.set(Capabilities::SHADER_INT64, long_words);
        capabilities.set(Capabilities::SUBGROUP, variant.is("subgroups"));
        let f16 = variant.has_f16();
        capabilities.set(Capabilities::SHADER_FLOAT16_IN_FLOAT32, f16);
        let cast = variant.f16_encoder == F16Encoder::Cast;
        capabilities.set(Capabilities::SHADER_FLOAT16, cast);
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .validate(&module)
            .map_err(|error| error.emit_to_string(&text))?;
        Ok(Self { module, info })
    }
}

/// A variant's SPIR-V without names.
pub fn spirv(variant: &Variant) -> Vec<u32> {
    let Parsed { module, info } = Parsed::new(variant).unwrap();
    let options = back::spv::Options {
        lang_version: (1, 3),
        flags: back::spv::WriterFlags::empty(),
        zero_initialize_workgroup_memory: back::spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        ..Default::default()
    };
    back::spv::write_vec(&module, &info, &options, None).unwrap()
}

/// Labels tell variants apart by everything but the sizes in their texts.
#[test]
fn variants_are_told_apart_by_their_labels() {
    let mut labels = HashMap::new();
    for variant in asked() {
        let traits = traits(variant);
        let known = labels
            .entry(variant.label())
            .or_insert_with(|| traits.clone());
        assert_eq!(*known, traits, "{}", variant.label());
    }
    let kernels = Kernel::ALL.iter().map(|k| k.entry().name());
    assert_eq!(kernels.collect::<HashSet<_>>().len(), Kernel::ALL.len());
}

/// Bindings, uniforms and constants.
fn check_manifest(variant: &Variant, parsed: &Parsed) -> Result<(), String> {
    check_constants(variant, parsed)?;
    check_bindings(variant, parsed)?;
    check_uniforms(variant, &parsed.module)?;
    check_structs(&parsed.module)?;
    ensure(!variant.wgsl().contains("arrayLength"), || {
        "sizes come from the uniform, not from arrayLength: a binding may be longer or, in a \
         window, shorter than its tensor"
            .to_owned()
    })
}

/// FXC, which compiles for DirectX where DXC is not available, cannot index arrays in structs in loops.
fn check_structs(module: &Module) -> Result<(), String> {
    let is_array = |ty| matches!(module.types[ty].inner, TypeInner::Array { .. });
    for (_, ty) in module.types.iter() {
        if let TypeInner::Struct { members, .. } = &ty.inner {
            ensure(!members.iter().any(|member| is_array(member.ty)), || {
                format!("an array in the struct {:?}", ty.name)
            })?;
        }
    }
    Ok(())
}

fn check_constants(variant: &Variant, parsed: &Parsed) -> Result<(), String> {
    let entry = variant.kernel.entry();
    let [point] = parsed.module.entry_points.as_slice() else {
        return Err("expected one entry point".to_owned());
    };
    ensure(
        point.name == entry.name() && point.stage == ShaderStage::Compute,
        || format!("entry point {}", point.name),
    )?;
    // Others may launch these texts, too: they are complete.
    ensure(parsed.module.overrides.is_empty(), || {
        "override constants".to_owned()
    })?;
    let module = &parsed.module;
    let shared = module.global_variables.iter();
    let shared = shared
        .filter(|(_, global)| global.space == AddressSpace::WorkGroup)
        .map(|(_, global)| module.types[global.ty].inner.size(module.to_ctx()));
    let shared: u32 = shared.sum();
    let reals = u64::from(variant.workgroup_size) * variant.body.shared_reals();
    ensure(
        u64::from(shared) <= reals * variant.accumulator().size(),
        || {
            format!(
                "{shared} bytes shared by {} invocations",
                variant.workgroup_size
            )
        },
    )?;
    let size = point.workgroup_size;
    ensure(size == [variant.workgroup_size, 1, 1], || {
        format!("workgroup size {size:?}")
    })
}

fn check_bindings(variant: &Variant, parsed: &Parsed) -> Result<(), String> {
    let module = &parsed.module;
    let use_of = parsed.info.get_entry_point(0);
    let mut found = BTreeSet::new();
    for (handle, global) in module.global_variables.iter() {
        let name = global.name.as_deref().unwrap_or_default();
        let Some(binding) = &global.binding else {
            ensure(global.space == AddressSpace::WorkGroup, || {
                format!("{name} is in {:?}", global.space)
            })?;
            continue;
        };
        ensure(binding.group == 0 && found.insert(binding.binding), || {
            format!("{name} is at {binding:?}")
        })?;
        // `load_…` of an override constant's dead branch counts as well.
        ensure(use_of[handle] != GlobalUse::empty(), || {
            format!("{name} is bound but not used")
        })?;
        let Some(&tensor) = variant.bound.get(binding.binding as usize) else {
            ensure(
                name == "uniforms" && global.space == AddressSpace::Uniform,
                || format!("{name} is at {binding:?} in {:?}", global.space),
            )?;
            continue;
        };
        let access = match variant.writes(tensor) {
            true => StorageAccess::LOAD | StorageAccess::STORE,
            false => StorageAccess::LOAD,
        };
        ensure(
            name == tensor.name() && global.space == AddressSpace::Storage { access },
            || format!("{name} at {} is {:?}", binding.binding, global.space),
        )?;
        ensure(
            !use_of[handle].contains(GlobalUse::WRITE) || variant.writes(tensor),
            || format!("{name} is written"),
        )?;
        let TypeInner::Array { base, size, .. } = module.types[global.ty].inner else {
            return Err(format!("{name} is no array"));
        };
        let element = &module.types[base].inner;
        ensure(
            size == ArraySize::Dynamic && *element == element_type(variant, tensor),
            || format!("{name} is an array of {element:?}"),
        )?;
    }
    ensure(found.len() == variant.bound.len() + 1, || {
        format!("bindings {found:?} for {:?}", variant.bound)
    })
}

/// The type of the elements of a binding's array: vec4s or pairs of them, where the buffer has room for the last one.
fn element_type(variant: &Variant, tensor: Tensor) -> TypeInner {
    let (dtype, access) = match tensor {
        Tensor::Mask => return TypeInner::Scalar(Scalar::U32),
        Tensor::Sums => (variant.data.accumulator(), Access::Exact),
        Tensor::Workspace => (variant.data.accumulator(), variant.access),
        _ if tensor.is_data() => (variant.data, variant.access_to(tensor)),
        _ if tensor.is_statistic() => (variant.statistics, variant.access_to(tensor)),
        _ => (variant.params, variant.access_to(tensor)),
    };
    let (scalar, size) = match dtype {
        DType::F16 | DType::Bf16 if variant.is_wide(tensor) => match access {
            Access::LongWords => (Scalar::U64, naga::VectorSize::Bi),
            _ => (Scalar::U32, naga::VectorSize::Quad),
        },
        DType::F32 if variant.is_wide(tensor) => (Scalar::U64, naga::VectorSize::Quad),
        DType::F16 | DType::Bf16 if access == Access::LongWords => {
            return TypeInner::Scalar(Scalar::U64);
        }
        DType::F32 if access == Access::LongWords => (Scalar::U64, naga::VectorSize::Bi),
        DType::F16 | DType::Bf16 => (Scalar::U32, naga::VectorSize::Bi),
        DType::F32 => (Scalar::F32, naga::VectorSize::Quad),
        DType::F64 => (Scalar::F64, naga::VectorSize::Quad),
    };
    match access {
        Access::Exact if variant.shares_words(tensor) => TypeInner::Atomic(scalar),
        Access::Exact => TypeInner::Scalar(scalar),
        _ => TypeInner::Vector { size, scalar },
    }
}

fn check_uniforms(variant: &Variant, module: &Module) -> Result<(), String> {
    let entry = variant.kernel.entry();
    let global = module.global_variables.iter().map(|(_, global)| global);
    let uniforms = global
        .filter(|global| global.space == AddressSpace::Uniform)
        .map(|global| &module.types[global.ty].inner)
        .next();
    let Some(TypeInner::Struct { members, span }) = uniforms else {
        return Err("no uniform struct".to_owned());
    };
    // A value for each field, and its position in the bytes.
    let fields = entry.uniforms.fields("");
    let samples = Uniforms::samples(&fields);
    let bytes = samples.bytes(variant.data.accumulator());
    ensure(bytes.len() == span.next_multiple_of(16) as usize, || {
        format!("the struct has {span} bytes, {} are written", bytes.len())
    })?;
    let names: Vec<_> = members.iter().map(|m| m.name.as_deref()).collect();
    let expected: Vec<_> = fields.iter().map(|(name, _)| Some(*name)).collect();
    ensure(names == expected, || format!("fields {names:?}"))?;
    for (&value, member) in samples.values().iter().zip(members) {
        let (scalar, value) = match (value, variant.data.accumulator()) {
            (Value::Word(value), _) => (Scalar::U32, value.to_ne_bytes().to_vec()),
            (Value::Real(value), DType::F64) => (Scalar::F64, value.to_ne_bytes().to_vec()),
            (Value::Real(value), _) => (Scalar::F32, (value as f32).to_ne_bytes().to_vec()),
        };
        let ty = &module.types[member.ty].inner;
        let at = member.offset as usize;
        ensure(
            *ty == TypeInner::Scalar(scalar) && bytes.get(at..at + value.len()) == Some(&value),
            || format!("{:?} is {ty:?} at byte {at}", member.name),
        )?;
    }
    Ok(())
}

/// A variant in one of the target languages.
enum Translation {
    Words(Vec<u32>),
    Text(String),
}

fn translate(variant: &Variant, parsed: &Parsed, target: Target) -> Result<Translation, String> {
    let name = variant.kernel.entry().name().to_owned();
    let (module, info) = (&parsed.module, &parsed.info);
    // As for pipelines: every index is in bounds, every slot is written before it is read.
    let policies = naga::proc::BoundsCheckPolicies::default();
    match target {
        Target::SpirV => {
            let options = back::spv::Options {
                lang_version: (1, 3),
                zero_initialize_workgroup_memory:
                    back::spv::ZeroInitializeWorkgroupMemoryMode::None,
                force_loop_bounding: false,
                ..Default::default()
            };
            let pipeline = back::spv::PipelineOptions {
                shader_stage: ShaderStage::Compute,
                entry_point: name,
            };
            back::spv::write_vec(module, info, &options, Some(&pipeline))
                .map(Translation::Words)
                .map_err(|error| error.to_string())
        }
        Target::Msl => {
            let options = back::msl::Options {
                lang_version: (2, 0),
                zero_initialize_workgroup_memory: false,
                force_loop_bounding: false,
                ..Default::default()
            };
            let pipeline = back::msl::PipelineOptions {
                entry_point: Some((ShaderStage::Compute, name)),
                ..Default::default()
            };
            back::msl::write_string(module, info, &options, &pipeline)
                .map_err(|error| error.to_string())
                .and_then(|(text, translated)| {
                    let points = translated.entry_point_names.into_iter();
                    points
                        .collect::<Result<Vec<_>, _>>()
                        .map_err(|error| error.to_string())?;
                    Ok(Translation::Text(text))
                })
        }
        Target::Hlsl => {
            let options = back::hlsl::Options {
                zero_initialize_workgroup_memory: false,
                force_loop_bounding: false,
                ..Default::default()
            };
            let (text, _) = hlsl(variant, parsed, &options)?;
            Ok(Translation::Text(text))
        }
        Target::Glsl(_) | Target::GlslEs(_) => {
            let options = back::glsl::Options {
                version: match target {
                    Target::Glsl(version) => back::glsl::Version::Desktop(version),
                    Target::GlslEs(version) => back::glsl::Version::new_gles(version),
                    _ => unreachable!(),
                },
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            };
            let pipeline = back::glsl::PipelineOptions {
                shader_stage: ShaderStage::Compute,
                entry_point: name,
                multiview: None,
            };
            let mut text = String::new();
            back::glsl::Writer::new(&mut text, module, info, &options, &pipeline, policies)
                .and_then(|mut writer| writer.write())
                .map_err(|error| error.to_string())?;
            Ok(Translation::Text(text))
        }
    }
}

/// A variant in HLSL, and the name of its entry point there.
fn hlsl(
    variant: &Variant,
    parsed: &Parsed,
    options: &back::hlsl::Options,
) -> Result<(String, String), String> {
    let name = variant.kernel.entry().name().to_owned();
    let pipeline = back::hlsl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, name)),
    };
    let mut text = String::new();
    let reflection = back::hlsl::Writer::new(&mut text, options, &pipeline)
        .write(&parsed.module, &parsed.info, None)
        .map_err(|error| error.to_string())?;
    let mut names = reflection.entry_point_names.into_iter();
    let name = names.next().ok_or("no entry point")?;
    Ok((text, name.map_err(|error| error.to_string())?))
}

/// Whether a validator is installed. If it is not, prints so, and fails where `WGPU_NORM_REQUIRE_VALIDATORS` is set.
fn installed(tool: &str) -> bool {
    let version = Command::new(tool).arg("--version").output();
    let installed = version.is_ok_and(|output| output.status.success());
    if !installed {
        let required = std::env::var_os("WGPU_NORM_REQUIRE_VALIDATORS").is_some();
        assert!(!required, "{tool} is required but not installed");
        // Past the test harness, which hides what passing tests print.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {tool} is not installed, translations are not checked by it"
        );
    }
    installed
}

fn spirv_val(words: &[u32]) -> Result<(), String> {
    let mut child = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.1", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that refuses its input early closes the pipe; its message says more.
        let _ = stdin.write_all(bytemuck::cast_slice(words));
    }
    let output = child.wait_with_output();
    let output = output.map_err(|error| error.to_string())?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // naga decorates workgroup arrays with an ArrayStride; newer validators object to that alone.
    let known = said.contains("VUID-StandaloneSpirv-None-10684");
    ensure(output.status.success() || known, || said.into_owned())
}

/// Checks texts, each given with its name, on all cores. Each run checks many files, since starting the tool takes
/// longer than checking one; but not too many: their names are the command's arguments, whose length systems limit.
fn glslang_validator(texts: &[(String, String)]) {
    let folder = std::env::temp_dir().join(format!("wgpu-norm-glsl-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    let chunks = Mutex::new(texts.chunks(200));
    let next = || chunks.lock().unwrap().next();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(texts) = next() {
                    glslang_validator_on(texts, &folder);
                }
            });
        }
    });
    let _ = fs::remove_dir_all(&folder);
}

fn glslang_validator_on(texts: &[(String, String)], folder: &Path) {
    let mut command = Command::new("glslangValidator");
    // Files have numbers, since labels would be too long for their names, and each thread its own folder.
    let thread = format!("{:?}", std::thread::current().id());
    let folder = folder.join(thread);
    fs::create_dir_all(&folder).expect("temporary files are writable");
    command.current_dir(&folder);
    for (number, (_, text)) in texts.iter().enumerate() {
        let file = format!("{number}.comp");
        fs::write(folder.join(&file), text).expect("temporary files are writable");
        command.arg(file);
    }
    let output = command.output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    // Each file's name stands on a line of its own, before its errors.
    let mut name = "";
    let mut complaints = Vec::new();
    for line in said.lines().map(str::trim) {
        if let Some(number) = line.strip_suffix(".comp") {
            let text = number.parse().ok().and_then(|n: usize| texts.get(n));
            name = text.map_or(line, |(name, _)| name);
        } else if line.contains("ERROR") {
            complaints.push(format!("{name}: {line}"));
        }
    }
    assert!(
        output.status.success() && complaints.is_empty(),
        "glslangValidator:\n{}",
        complaints.get(..20).unwrap_or(&complaints).join("\n")
    );
}

#[test]
fn every_variant_is_as_the_manifest_says_and_translates_to_its_targets() {
    let has_spirv_val = installed("spirv-val");
    let has_glslang_validator = installed("glslangValidator");
    let glsl = Mutex::new(Vec::new());
    check_all(asked(), |variant| {
        let parsed = Parsed::new(variant)?;
        check_manifest(variant, &parsed)?;
        let targets = variant.targets();
        for &target in targets {
            let complain = |error: String| format!("{target:?}: {error}");
            match translate(variant, &parsed, target).map_err(complain)? {
                Translation::Words(words) if has_spirv_val => {
                    spirv_val(&words).map_err(complain)?;
                }
                Translation::Words(_) => {}
                Translation::Text(text) => {
                    ensure(!text.is_empty(), || complain("nothing".to_owned()))?;
                    if matches!(target, Target::Glsl(_) | Target::GlslEs(_)) {
                        let name = format!("{target:?} of {}", variant.label());
                        glsl.lock().unwrap().push((name, text));
                    }
                }
            }
        }
        // A target that is not claimed must be refused: GLSL ES has no f64. Others are not tried: naga's MSL writer
        // panics on f64 instead of refusing it, and wgpu offers no f64 on GL.
        let es = Target::GlslEs(310);
        let refused = targets.contains(&es) || translate(variant, &parsed, es).is_err();
        ensure(refused, || "GLSL ES takes what it should not".to_owned())
    });
    let glsl = glsl.into_inner().unwrap();
    assert!(!glsl.is_empty());
    if has_glslang_validator {
        glslang_validator(&glsl);
    }
}

/// For `tools/tint/run.sh target/wgsl`: every variant that has no types of 64 bits, as WGSL proper has none.
#[test]
#[ignore = "writes files for tools/tint; scripts/test.sh --all"]
fn writes_every_variant_for_tint() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/wgsl");
    // Files that an earlier manifest left there must not be checked.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("target is writable");
    let variants = asked().iter();
    let variants =
        variants.filter(|v| v.accumulator() != DType::F64 && v.access != Access::LongWords);
    // WebGPU's default limits: 8 storage buffers, 256 invocations a workgroup. The text is the same but for that
    // number.
    for (number, variant) in variants.filter(|v| v.bound.len() <= 8).enumerate() {
        let variant = Variant {
            workgroup_size: variant.workgroup_size.min(256),
            ..variant.clone()
        };
        let settings = format!(
            r#"{{"entry_point": "{}", "constants": {{}}}}"#,
            variant.kernel.entry().name()
        );
        // Labels would be longer than a file's name may be.
        let write = |extension: &str, text: String| {
            let path = folder.join(format!("{number:04}.{extension}"));
            fs::write(path, text).expect("target is writable");
        };
        write(
            "wgsl",
            format!("// {}\n{}", variant.label(), variant.wgsl()),
        );
        write("json", settings);
    }
}

/// Name and text of every WGSL file of a folder.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).map(read).collect();
    files.sort();
    files
}

/// The opening comment of a WGSL file.
fn header(text: &str) -> String {
    let lines: Vec<_> = text.lines().map_while(|l| l.strip_prefix("//")).collect();
    lines.join("\n")
}

/// WGSL zeroes such a variable in every iteration. Tint's SPIR-V, which browsers run, and naga before version 30
/// zero it once.
#[test]
fn variables_declared_in_loops_have_initializers() {
    let folders = [
        "shaders/traversals",
        "shaders/operators",
        "shaders/parts",
        "shaders/elements",
    ];
    let mut declared = 0;
    for (name, text) in folders.into_iter().flat_map(files) {
        let mut blocks = Vec::new(); // whether each enclosing block is a loop's
        for line in text.lines() {
            let code = line.split("//").next().unwrap().trim();
            let is_loop = ["for ", "while ", "loop "]
                .iter()
                .any(|l| code.starts_with(l));
            if code.starts_with("var ") && blocks.contains(&true) {
                assert!(code.contains('='), "{name}: {code}");
                declared += 1;
            }
            for symbol in code.chars() {
                match symbol {
                    '{' => blocks.push(is_loop),
                    '}' => drop(blocks.pop()),
                    _ => {}
                }
            }
        }
        assert!(blocks.is_empty(), "{name}");
    }
    assert!(declared > 10);
}

#[test]
fn every_file_says_what_it_is() {
    for folder in [
        "shaders/activations",
        "shaders/elements",
        "shaders/operators",
        "shaders/parts",
    ] {
        for (name, text) in files(folder) {
            assert!(!header(&text).is_empty(), "{folder}/{name}: no header");
        }
    }
}

/// The files of a kernel's text, with everything that it may import.
fn all_files(entry: &Entry, body: Body) -> Vec<files::File> {
    let activations = [
        crate::options::Activation::None,
        crate::options::Activation::Silu,
    ];
    let each = activations.into_iter().flat_map(|activation| {
        let file = super::epilogue::file(activation);
        let imports =
            |is: &dyn Fn(&str) -> bool| files::with_imports(entry.file, body.file(), file, is);
        // All flags, none, and all but one.
        let constants = entry.constants.iter().map(|&(flag, _)| flag);
        let but_one = constants.map(|flag| imports(&|name| name != flag));
        let mut all = vec![imports(&|_| true), imports(&|_| false)];
        all.extend(but_one);
        all
    });
    each.flatten().collect()
}

#[test]
fn every_part_is_of_a_kernel() {
    let parts = files("shaders/parts");
    for (name, text) in &parts {
        let used = |kernel: &Kernel| {
            let fitting = Body::ALL.into_iter().filter(|body| body.fits(*kernel));
            let mut files = fitting.flat_map(|body| all_files(kernel.entry(), body));
            files.any(|file| file.text == text)
        };
        assert!(Kernel::ALL.iter().any(used), "{name}");
    }
    let of_folder = PARTS
        .iter()
        .filter(|(_, file)| file.path.starts_with("shaders/parts/"));
    let there = parts.iter().map(|(name, _)| name.as_str());
    assert!(of_folder.map(|(name, _)| *name).eq(there));
}

/// The files that a file imports exist, and so do the constants that ask for them.
#[test]
fn files_import_what_there_is() {
    for kernel in Kernel::ALL {
        let entry = kernel.entry();
        for file in Body::ALL
            .into_iter()
            .flat_map(|body| all_files(entry, body))
        {
            for import in files::imports(file.text) {
                let named = [files::BODY, files::ACTIVATION].contains(&import.name);
                let known = named || PARTS.iter().any(|(name, _)| *name == import.name);
                assert!(known, "{}: {import:?}", file.path);
                let flag = |constant| {
                    let mut constants = entry.constants.iter();
                    let own = constants.any(|own| *own == (constant, Constant::Flag(false)));
                    own || constant == SUBGROUPS
                };
                let has = import.condition.is_none_or(|(constant, _)| flag(constant));
                assert!(has, "{}: {import:?}", file.path);
            }
        }
    }
}

/// A file imports every part that alone declares something that the file uses, and no part that it does not use.
#[test]
fn files_import_what_they_use() {
    let word_end = |c: char| !c.is_alphanumeric() && c != '_';
    // A function's name with the parenthesis after it, since a variable may have the same name.
    let declared = |text: &str| -> Vec<String> {
        let words = ["fn ", "const ", "alias ", "struct ", "var<workgroup> "];
        let lines = text.lines();
        let names = lines.filter_map(|line| {
            let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
            let name = rest.split(word_end).next()?;
            let call = if line.starts_with("fn ") { "(" } else { "" };
            Some(format!("{name}{call}"))
        });
        names.collect()
    };
    let of_parts = files("shaders/parts");
    let traversals = files("shaders/traversals");
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let contract = read("shaders/operators/contract.wgsl");
    let texts = of_parts.iter().chain(&traversals).map(|(_, text)| text);
    let all_words: HashSet<_> = texts.flat_map(|text| files::words_of_code(text)).collect();
    let params = Params {
        bound: &[],
        copied: 0,
    };
    for body in Body::ALL {
        let mut parts = of_parts.clone();
        let made = sums::text(body.sums(), &all_words).join("\n");
        let all_of_body = [body.file().text, &contract, &made].join("\n\n");
        parts.push(("body".to_owned(), all_of_body));
        for (_, text) in parts.iter_mut().filter(|(name, _)| name == "params") {
            // Some need nothing; the copies are for what calls `given_params`.
            let made = params.text(&all_words).join("\n");
            let needless = [
                "struct ",
                "load_param(",
                "copied_param(",
                "neutral_params(",
                "select_params(",
                "splat_params(",
                "side_by_side(",
            ];
            let lines = made.lines();
            let lines = lines.filter(|line| !needless.iter().any(|text| line.contains(text)));
            *text += &lines.collect::<Vec<_>>().join("\n");
        }
        let kernels = Kernel::ALL.into_iter().filter(|kernel| body.fits(*kernel));
        let names: Vec<_> = kernels.map(|kernel| kernel.entry().name()).collect();
        let fitting = traversals
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()));
        let declares = |name: &String| {
            let files = parts.iter().chain(&traversals);
            files
                .filter(|(_, text)| declared(text).contains(name))
                .count()
        };
        for (name, text) in parts.iter().chain(fitting) {
            let code = text
                .lines()
                .filter(|line| !line.starts_with("#import"))
                .map(|line| line.split("//").next().unwrap_or_default());
            let mut code = code.collect::<Vec<_>>().join("\n");
            // The functions that generated ones call.
            for (made, called) in [
                ("realigned_inputs(", "\nrealigned("),
                ("given_params(", "\ncopied_param("),
            ] {
                if name != "params" && code.contains(made) {
                    code += called;
                }
            }
            let own = declared(text);
            let mut words = HashSet::new();
            for word in code.split_inclusive(word_end) {
                words.insert(word.trim_end_matches(word_end).to_owned());
                words.insert(word.to_owned());
            }
            let uses = |name: &String| !own.contains(name) && words.contains(name);
            let named: Vec<_> = files::imports(text).map(|import| import.name).collect();
            for (part, text) in parts.iter().filter(|(part, _)| part != name) {
                let of_part = declared(text);
                let mut used = of_part.iter().filter(|name| uses(name));
                match named.contains(&part.as_str()) {
                    // Generated functions move vectors, too.
                    true if part == "vectors" => {}
                    true => assert!(used.next().is_some(), "{name} does not need {part}"),
                    false => {
                        let missed = used.find(|name| declares(name) == 1);
                        assert_eq!(missed, None, "{name} needs {part}");
                    }
                }
            }
        }
    }
}

/// A body's definition replaces the contract's, which has a default for everything else unless it says that there is
/// none.
#[test]
fn bodies_replace_defaults() {
    for body in Body::ALL {
        let composed = |file| files::composed(file, body.file());
        let none = super::epilogue::file(crate::options::Activation::None);
        let finish = Kernel::Finish.entry().file;
        let all = files::with_imports(finish, body.file(), none, &|_| true);
        let text: String = all.into_iter().map(composed).collect();
        for name in [
            "fn merge_totals(",
            "fn with_sums(",
            "fn begin(",
            "fn weigh(",
        ] {
            assert_eq!(text.matches(name).count(), 1, "{}: {name}", body.name());
        }
        let blocks = ["alias Block", "struct Block"].map(|name| text.matches(name).count());
        assert_eq!(blocks.iter().sum::<usize>(), 1, "{}", body.name());
        assert!(!text.contains("#import"), "{}", body.name());
    }
}

/// A team's sums in a loop take turns in the two halves of the memory, or a barrier follows: otherwise a subgroup may
/// overwrite what another has not read yet, which drivers for the CPU do not show.
#[test]
fn sums_in_loops_take_turns_in_memory() {
    for (name, text) in files("shaders/traversals") {
        let functions = text.split("\nfn ").skip(1);
        let calling = functions.filter(|text| text.contains("team_sum("));
        let calling = calling.filter_map(|text| text.split_inclusive('(').next());
        let calls: Vec<_> = calling.chain(["team_sum("]).collect();
        let text = text.replace("*half", "half"); // a pointer, in a function
        let lines: Vec<_> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let is_in_loop = line.starts_with("        ");
            if calls.iter().any(|call| line.contains(call)) && is_in_loop {
                let next = lines[number + 1..].iter().take(5);
                let is_followed = next.clone().any(|line| line.contains("workgroupBarrier()"));
                let takes_turns = line.contains(", half, ")
                    && next.clone().any(|line| line.trim() == "half = 1u - half;");
                assert!(is_followed || takes_turns, "{name}:{}: {line}", number + 1);
            }
        }
    }
}

#[test]
fn headers_name_the_bindings() {
    let mut kernels = Kernel::ALL.to_vec();
    for (name, text) in files("shaders/traversals") {
        let header = header(&text);
        let index = kernels
            .iter()
            .position(|kernel| kernel.entry().name() == name);
        let index = index.unwrap_or_else(|| panic!("{name}: no kernel"));
        let kernel = kernels.swap_remove(index);
        let entry = kernel.entry();
        assert_eq!(entry.file.text, text, "{name}: another text");
        let (_, bindings) = header
            .split_once(" Bindings")
            .unwrap_or_else(|| panic!("{name}: the header names no bindings"));
        let (bindings, _) = bindings
            .split_once("Moves ")
            .unwrap_or_else(|| panic!("{name}: the header does not say what is moved"));
        let words: Vec<_> = bindings
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        let own = asked().iter().filter(|variant| variant.kernel == kernel);
        for tensor in own.flat_map(|variant| &variant.bound) {
            let all = match tensor {
                Tensor::Gamma | Tensor::Beta | Tensor::Gate => "parameters",
                tensor if tensor.is_param() => "gradients",
                tensor if tensor.is_statistic() && !tensor.is_running() => "statistics",
                tensor => tensor.name(),
            };
            let is_there = words.contains(&all) || words.contains(&tensor.name());
            assert!(is_there, "{name}: the header lacks {tensor:?}");
        }
    }
    let rest: Vec<_> = kernels.iter().map(|kernel| kernel.entry().name()).collect();
    assert!(rest.is_empty(), "no file of their own: {rest:?}");
}

/// If no text reads a constant or uniform, some text has forgotten it.
#[test]
fn every_constant_and_uniform_is_read() {
    let mut unread = BTreeMap::<&str, bool>::new();
    for kernel in Kernel::ALL {
        let entry = kernel.entry();
        let bodies = Body::ALL.into_iter().filter(|body| body.fits(kernel));
        let texts = bodies.flat_map(|body| all_files(entry, body));
        let texts: Vec<_> = texts.map(|file| file.text).collect();
        let code: HashSet<_> = texts
            .iter()
            .flat_map(|text| files::words_of_code(text))
            .collect();
        let reads = |name: &str| code.contains(name);
        for (name, value) in entry.constants {
            let chooses = matches!(value, Constant::Flag(_))
                && files::imports(entry.file.text).any(|import| {
                    import
                        .condition
                        .is_some_and(|(constant, _)| constant == *name)
                });
            let of_accessors = [SHARES_WORDS, SHARES_RESULTS].contains(name);
            assert!(
                chooses || reads(name) || of_accessors,
                "{}: {name}",
                entry.name()
            );
        }
        // One of the kernels that share a group of fields may not need them all; accessors read lengths.
        let lengths = [Tensor::Mean, Tensor::Gamma].map(|tensor| entry.length(tensor));
        let lengths = [lengths[0], lengths[1], "length"];
        for (name, _) in entry.uniforms.fields("") {
            *unread.entry(name).or_default() |= reads(name) || lengths.contains(&name);
        }
    }
    unread.retain(|_, read| !*read);
    assert!(unread.is_empty(), "{:?}", unread.keys());
}
