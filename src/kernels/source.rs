//! Joins a kernel's text from its parts: element types, bindings, accessors, helpers, the kernel.

use super::accessors::{self, Access, Accessors, Storage};
use super::{Body, Constant, Ending, Kernel, ending, parts};
#[cfg(test)]
use crate::Activation;
use crate::{DType, Tensor};

/// A language that naga translates kernels to.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    SpirV,
    Hlsl,
    Msl,
    /// Desktop GLSL of a version.
    Glsl(u16),
    /// GLSL ES of a version.
    GlslEs(u16),
}

/// The constant of a text that says how many vec4s a load of data moves, 1 or 2.
pub(super) const VECTOR_VEC4S: &str = "vector_vec4s";

/// The constant that says whether rows share words; the functions that read and write tensors are made by it.
pub(super) const SHARES_WORDS: &str = "shares_words";

/// The constant of a text that says at multiples of how many elements a mask's binding begins.
pub(crate) const MASK_UNIT: &str = "mask_unit";

/// Everything that a pipeline depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Variant {
    pub kernel: Kernel,
    pub body: Body,
    pub ending: Ending,
    pub data: DType,
    pub params: DType,
    /// Of mean, variance and running statistics.
    pub statistics: DType,
    /// The tensors that are bound, from binding 0 on; the uniform is the binding after them.
    pub bound: Vec<Tensor>,
    /// diff_src is written through diff_dst's binding.
    pub in_place: bool,
    /// A buffer is bound twice, so every binding is read_write: wgpu allows no other mixture.
    pub pooled: bool,
    /// Of all tensors but the exact ones.
    pub access: Access,
    /// The bound tensors whose buffers end with them, inside of a vec4: [`Access::Exact`].
    pub exact: Vec<Tensor>,
    pub workgroup_size: u32,
    /// The constants that the text begins with.
    pub constants: Vec<(&'static str, Constant)>,
}

impl Variant {
    /// The same kernel with the element types that its bound tensors have, so that it is compiled once
    /// for all plans.
    pub fn normalized(mut self) -> Self {
        if !self.bound.iter().any(|t| t.is_data()) {
            self.data = self.accumulator();
        }
        // Two rows may share a vec4, but each stores its own elements of it. By words: a store to a component of a
        // vector may touch all of it.
        if self.shares_vec4s() {
            self.exact.push(match self.in_place {
                true => Tensor::DiffDst,
                false => self.body.result(),
            });
            let sum = self.bound.iter().find(|&&tensor| tensor == Tensor::Sum);
            self.exact.extend(sum);
        }
        if self.kernel == Kernel::RowsFused {
            // Invocations store one statistic each, beside others'.
            let stored = self.bound.iter().copied();
            let stored = stored.filter(|&t| t.is_statistic() && self.body.writes(t));
            self.exact.extend(stored);
        }
        // Kernels that touch no element compute no activation.
        if matches!(
            self.kernel,
            Kernel::PackWeights | Kernel::Finish | Kernel::CombineGroups
        ) {
            self.ending = Ending {
                gamma_ignored: self.ending.gamma_ignored,
                ..Ending::default()
            };
        }
        self.exact.retain(|&tensor| tensor != Tensor::Mask);
        self.exact.sort();
        self.exact.dedup();
        let by_words =
            |t: &Tensor| matches!(t, Tensor::Sums | Tensor::Mask) || self.exact.contains(t);
        // f64 has words of 64 bits anyway.
        if self.accumulator() == DType::F64 || self.bound.iter().all(by_words) {
            self.access = Access::Vec4;
        }
        if !self.bound.iter().any(|t| t.is_param()) {
            self.params = self.accumulator();
        }
        if !self.bound.iter().any(|t| t.is_statistic()) {
            self.statistics = self.accumulator();
        }
        self
    }

    /// The type that the kernel calculates in.
    pub fn accumulator(&self) -> DType {
        self.data.accumulator()
    }

    /// Whether a tensor's binding is declared read_write.
    pub fn writes(&self, tensor: Tensor) -> bool {
        self.pooled
            || tensor.is_scratch()
            || self.body.writes(tensor)
            || (self.in_place && tensor == Tensor::DiffDst)
    }

    /// The languages that it must translate to: all that wgpu may ask for where it runs. f64 exists on
    /// Vulkan alone; encoding f16 and bf16 selects between integers, which desktop GLSL has
    /// from 4.50 on.
    #[cfg(test)]
    pub fn targets(&self) -> &'static [Target] {
        use Target::{Glsl, GlslEs, Hlsl, Msl, SpirV};
        match [self.data, self.params, self.statistics] {
            _ if self.access == Access::LongWords => &[SpirV, Hlsl, Msl],
            // There are no sums of f64 over subgroups.
            [DType::F64, ..] if self.is("subgroups") => &[],
            [DType::F64, ..] => &[SpirV],
            [DType::F32, DType::F32, DType::F32] => &[SpirV, Hlsl, Msl, GlslEs(310), Glsl(430)],
            _ => &[SpirV, Hlsl, Msl, GlslEs(310), Glsl(450)],
        }
    }

    /// Whether it has a constant of this name that is true.
    pub fn is(&self, name: &str) -> bool {
        self.constants.contains(&(name, Constant::Flag(true)))
    }

    /// Whether a vec4 of diff_src is stored by several, each some words of it.
    fn shares_vec4s(&self) -> bool {
        self.kernel == Kernel::RowsFused && !self.is("aligned")
    }

    /// A name that tells variants of a kernel apart.
    #[cfg(test)]
    pub fn label(&self) -> String {
        let name = self.kernel.entry().name;
        let types = format!("{}-{}-{}", self.data, self.params, self.statistics);
        let mut label = format!("{name}-{}-{types}", self.body.name());
        let Ending {
            activation,
            residual,
            gamma_ignored,
        } = self.ending;
        for (on, name) in [
            (activation != Activation::None, activation.name()),
            (residual, "residual"),
            (gamma_ignored, "gamma_ignored"),
        ] {
            if on {
                label += &format!("-{name}");
            }
        }
        for tensor in self.kernel.entry().optional(self.body, self.ending) {
            if !self.bound.contains(&tensor) {
                label += &format!("-no_{}", tensor.name());
            }
        }
        for (on, name) in [
            (self.in_place, "in_place"),
            (self.pooled, "pooled"),
            (self.access == Access::LongWords, "long_words"),
        ] {
            if on {
                label += &format!("-{name}");
            }
        }
        for tensor in &self.exact {
            label += &format!("-exact_{}", tensor.name());
        }
        for (name, value) in &self.constants {
            match value {
                Constant::Flag(true) => label += &format!("-{name}"),
                Constant::Size(2) if *name == VECTOR_VEC4S => label += "-vectors",
                Constant::Flag(false) | Constant::Size(_) => {}
            }
        }
        label
    }

    /// How many vec4s a load of data moves, in a kernel that moves vectors.
    pub(super) fn vector_vec4s(&self) -> Option<u32> {
        let mut constants = self.constants.iter();
        constants.find_map(|constant| match *constant {
            (VECTOR_VEC4S, Constant::Size(vec4s)) => Some(vec4s),
            _ => None,
        })
    }

    /// Whether the elements of a tensor's binding are vectors of two vec4s.
    pub(super) fn is_wide(&self, tensor: Tensor) -> bool {
        let fits = match (self.dtype(tensor), self.access_to(tensor)) {
            (_, Access::Exact) | (DType::F64, _) => false,
            (DType::F32, access) => access == Access::LongWords,
            (DType::F16 | DType::Bf16, _) => true,
        };
        tensor.is_data() && self.vector_vec4s() == Some(2) && fits
    }

    fn dtype(&self, tensor: Tensor) -> DType {
        match tensor {
            Tensor::Sums | Tensor::Workspace => self.accumulator(),
            Tensor::Mask => DType::F32, // has words of 32 bits, too
            _ if tensor.is_data() => self.data,
            _ if tensor.is_statistic() => self.statistics,
            _ => self.params,
        }
    }

    /// The WGSL text.
    pub fn wgsl(&self) -> String {
        let entry = self.kernel.entry();
        let activation = ending::text(self.ending.computed(self.body));
        let texts = parts::with_needs(entry.text, self.body.text(), activation, &|constant| {
            self.is(constant)
        });
        let mut parts = vec![match self.accumulator() {
            DType::F64 => include_str!("../../shaders/elements/f64.wgsl").to_owned(),
            _ => include_str!("../../shaders/elements/f32.wgsl").to_owned(),
        }];
        let dtypes = [self.data, self.params, self.statistics];
        if dtypes.contains(&DType::F16) {
            parts.push(include_str!("../../shaders/elements/f16.wgsl").to_owned());
        }
        if dtypes.contains(&DType::Bf16) {
            parts.push(include_str!("../../shaders/elements/bf16.wgsl").to_owned());
        }
        if self.access == Access::LongWords {
            parts.push(include_str!("../../shaders/elements/long_words.wgsl").to_owned());
        }
        parts.push(Constant::Size(self.workgroup_size).declaration("workgroup_size"));
        let given = !self.body.statistics().is_empty();
        parts.push(Constant::Flag(given).declaration("statistics_given"));
        for (name, value) in [
            ("of_groups", self.body.of_groups()),
            ("residual_after", self.ending.residual),
            ("gamma_ignored", self.ending.gamma_ignored),
        ] {
            parts.push(Constant::Flag(value).declaration(name));
        }
        for (name, value) in &self.constants {
            parts.push(value.declaration(name));
        }
        parts.push(entry.uniforms.declaration());
        for (binding, &tensor) in self.bound.iter().enumerate() {
            parts.push(self.declaration(binding, tensor));
        }
        let last = self.bound.len();
        parts.push(format!(
            "@group(0) @binding({last}) var<uniform> uniforms: Uniforms;\n"
        ));
        let called = |name: &str| texts.iter().any(|text| calls(text, name));
        for tensor in Tensor::ALL
            .into_iter()
            .filter(|tensor| called(tensor.name()))
        {
            parts.extend(self.accessors(tensor.name(), Some(tensor)));
        }
        for (role, tensor) in [
            ("second", self.body.second()),
            ("result", Some(self.body.result())),
        ] {
            if called(role) {
                parts.extend(self.accessors(role, tensor));
            }
        }
        parts.extend(texts.into_iter().map(str::to_owned));
        for_mutants(parts.join("\n"))
    }

    fn declaration(&self, binding: usize, tensor: Tensor) -> String {
        let element = match tensor {
            Tensor::Sums => "real",
            Tensor::Mask => "u32",
            _ => self.storage(tensor).element(),
        };
        let access = ["read", "read_write"][usize::from(self.writes(tensor))];
        let name = tensor.name();
        format!("@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;\n")
    }

    fn storage(&self, tensor: Tensor) -> Storage {
        Storage {
            dtype: self.dtype(tensor),
            access: self.access_to(tensor),
            wide: self.is_wide(tensor),
            shared: self.shares_words(tensor),
        }
    }

    /// Whether rows that are written at the same time may share words of a tensor.
    pub(super) fn shares_words(&self, tensor: Tensor) -> bool {
        let result = match self.in_place {
            true => Tensor::DiffDst,
            false => self.body.result(),
        };
        self.shares_vec4s()
            && self.is(SHARES_WORDS)
            && self.data.size() < 4
            && [result, Tensor::Sum].contains(&tensor)
    }

    /// How a bound tensor is read and written.
    pub(super) fn access_to(&self, tensor: Tensor) -> Access {
        match self.exact.contains(&tensor) {
            true => Access::Exact,
            false => self.access,
        }
    }

    /// The functions by which a kernel reads and writes a tensor, of the names that its text has for it; of one that is
    /// not there, such that read a constant or write nothing.
    fn accessors(&self, name: &'static str, tensor: Option<Tensor>) -> Vec<String> {
        let through = match tensor {
            Some(Tensor::DiffSrc) if self.in_place => Some(Tensor::DiffDst),
            tensor => tensor,
        };
        let bound = through.filter(|through| self.bound.contains(through));
        if tensor == Some(Tensor::Sums) {
            return vec![accessors::sums(bound.is_some()).to_owned()];
        }
        let entry = self.kernel.entry();
        let (mut reads, mut writes) = (None, None);
        let mut texts = Vec::new();
        let is_data = tensor.is_none_or(Tensor::is_data);
        if let (Some(tensor), Some(bound)) = (tensor, bound) {
            let accessors = Accessors {
                storage: self.storage(bound),
                tensor: name,
                array: bound.name(),
                length: match tensor {
                    tensor if tensor.is_data() => "length",
                    tensor if tensor.is_statistic() => entry.statistics_length,
                    _ => entry.gamma_length,
                },
            };
            let is_workspace = tensor == Tensor::Workspace;
            let wide = accessors.storage.wide;
            if is_workspace || self.body.reads(tensor) {
                let masked = bound == Tensor::DiffDst && self.bound.contains(&Tensor::Mask);
                texts.push(match masked {
                    true => accessors.load_masked(entry.has_window()),
                    false => accessors.load(),
                });
                reads = Some(wide);
            }
            if is_workspace || self.body.writes(tensor) {
                texts.push(accessors.store());
                writes = Some(wide);
                if self.shares_vec4s() && is_data {
                    texts.push(accessors.store_some());
                }
                texts.push(
                    match self.kernel == Kernel::RowsFused && tensor.is_statistic() {
                        true => accessors.store_one(),
                        false => accessors::absent_store_one(name),
                    },
                );
            }
        }
        if reads.is_none() {
            let value = if tensor == Some(Tensor::Gamma) {
                "real4(1.0)"
            } else {
                "real4()"
            };
            texts.push(accessors::absent_load(name, value));
        }
        if writes.is_none() {
            texts.push(accessors::absent_store(name));
            texts.push(accessors::absent_store_one(name));
        }
        if let (Some(vec4s), true) = (self.vector_vec4s(), is_data) {
            if reads != Some(true) {
                texts.push(accessors::load_vectors(name, vec4s));
            }
            if writes != Some(true) {
                texts.push(accessors::store_vectors(name, vec4s));
            }
        }
        texts
    }
}

/// Whether a text calls a function that reads or writes what it knows by a name.
fn calls(text: &str, name: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "load_",
        "load_vector_",
        "store_",
        "store_one_",
        "store_part_",
        "store_some_",
        "store_vector_",
        "store_part_vector_",
    ];
    let named = if name == Tensor::Sums.name() {
        "of_sums"
    } else {
        name
    };
    PREFIXES
        .iter()
        .any(|prefix| text.contains(&format!("{prefix}{named}(")))
}

/// A kernel's text. In a development build it is damaged on request: `WGPU_NORM_SWAP` names a file that holds a part of
/// the text, a NUL and what takes its place; `WGPU_NORM_TEXTS` names a folder to which texts are written. So
/// `tools/mutants` damages kernels without a build for each.
fn for_mutants(text: String) -> String {
    #[cfg(debug_assertions)]
    {
        use std::hash::{DefaultHasher, Hash, Hasher};
        if let Some(folder) = std::env::var_os("WGPU_NORM_TEXTS") {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            let name = format!("{:x}.wgsl", hasher.finish());
            // Nobody but the tool wants them.
            let _ = std::fs::write(std::path::Path::new(&folder).join(name), &text);
        }
        if let Some(path) = std::env::var_os("WGPU_NORM_SWAP")
            && let Ok(swap) = std::fs::read_to_string(path)
            && let Some((from, to)) = swap.split_once('\0')
        {
            return text.replace(from, to);
        }
    }
    text
}
