//! Joins a kernel's text from its parts: element types, bindings, accessors, helpers, the kernel.

use super::{Kernel, Tensor};
use crate::DType;

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

/// How a kernel reads and writes the storage of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Four elements at once: a vector, of 32-bit words for types of 16 bits.
    Quads,
    /// Four elements at once, in 64-bit words: half as many for a driver that moves them one by one.
    LongWords,
    /// Word by word, none beyond the tensor's end.
    Exact,
}

/// The constant of a text that says how many quads a load of data moves, 1 or 2.
pub(crate) const PACKET_QUADS: &str = "packet_quads";

/// Everything that a pipeline depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Variant {
    pub kernel: Kernel,
    pub data: DType,
    pub params: DType,
    /// The tensors that are bound, in the order of the manifest.
    pub bound: Vec<Tensor>,
    /// diff_src is written through diff_dst's binding.
    pub in_place: bool,
    /// A buffer is bound twice, so every binding is read_write: wgpu allows no other mixture.
    pub pooled: bool,
    /// Of all tensors but the exact ones.
    pub access: Access,
    /// The bound tensors whose buffers end with them, inside of a quad: [`Access::Exact`].
    pub exact: Vec<Tensor>,
    pub workgroup_size: u32,
    /// Constants that the text gets, since lengths of register arrays cannot be overridden.
    pub sizes: Vec<(&'static str, u32)>,
    /// Override constants that are true.
    pub enabled: Vec<&'static str>,
}

impl Variant {
    /// The same kernel with the element types that its bound tensors have, so that it is compiled once
    /// for all plans.
    pub fn normalized(mut self) -> Self {
        let scratch = |t: &Tensor| matches!(t, Tensor::Sums | Tensor::Workspace);
        if !self.bound.iter().any(|t| t.is_data()) {
            self.data = self.accumulator();
        }
        // Two rows may share a quad, but each stores its own elements of it. By words: a store to a component of a
        // vector may touch all of it.
        if self.kernel.shares_quads() {
            self.exact.push(match self.in_place {
                true => Tensor::DiffDst,
                false => Tensor::DiffSrc,
            });
            self.exact.sort();
            self.exact.dedup();
        }
        let by_words = |t: &Tensor| *t == Tensor::Sums || self.exact.contains(t);
        // f64 has words of 64 bits anyway.
        if self.accumulator() == DType::F64 || self.bound.iter().all(by_words) {
            self.access = Access::Quads;
        }
        if !self.bound.iter().any(|t| !t.is_data() && !scratch(t)) {
            self.params = self.accumulator();
        }
        self
    }

    /// The type that the kernel calculates in.
    pub fn accumulator(&self) -> DType {
        self.data.accumulator()
    }

    /// Whether a tensor's binding is declared read_write.
    pub fn writes(&self, tensor: Tensor) -> bool {
        self.pooled || tensor.is_output() || (self.in_place && tensor == Tensor::DiffDst)
    }

    /// The languages that it must translate to: all that wgpu may ask for where it runs. f64 exists on
    /// Vulkan alone; encoding f16 and bf16 selects between integers, which desktop GLSL has
    /// from 4.50 on.
    #[cfg(test)]
    pub fn targets(&self) -> &'static [Target] {
        use Target::{Glsl, GlslEs, Hlsl, Msl, SpirV};
        match (self.data, self.params) {
            _ if self.access == Access::LongWords => &[SpirV, Hlsl, Msl],
            // There are no sums of f64 over subgroups.
            (DType::F64, _) if self.kernel.entry().subgroups => &[],
            (DType::F64, _) => &[SpirV],
            (DType::F32, DType::F32) => &[SpirV, Hlsl, Msl, GlslEs(310), Glsl(430)],
            _ => &[SpirV, Hlsl, Msl, GlslEs(310), Glsl(450)],
        }
    }

    /// Values of the override constants.
    pub fn constants(&self) -> Vec<(&'static str, f64)> {
        let flag = |name: &'static str| (name, f64::from(u8::from(self.enabled.contains(&name))));
        let mut constants = vec![("workgroup_size", f64::from(self.workgroup_size))];
        constants.extend(self.kernel.entry().constants.iter().map(|&name| flag(name)));
        constants
    }

    /// A name that tells variants of a kernel apart.
    #[cfg(test)]
    pub fn label(&self) -> String {
        let mut label = format!("{}-{}-{}", self.kernel.entry().name, self.data, self.params);
        if self.kernel.entry().subgroups {
            label += "-subgroup";
        }
        if self.kernel.fuses_unaligned_rows() {
            label += "-unaligned";
        }
        for tensor in self.kernel.entry().optional {
            if !self.bound.contains(tensor) {
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
        if self.packet_quads() == Some(2) {
            label += "-packets";
        }
        for tensor in &self.exact {
            label += &format!("-exact_{}", tensor.name());
        }
        for name in &self.enabled {
            label += &format!("-{name}");
        }
        label
    }

    /// How many quads a load of data moves, in a kernel that moves packets.
    pub(super) fn packet_quads(&self) -> Option<u32> {
        let mut sizes = self.sizes.iter();
        sizes
            .find(|(name, _)| *name == PACKET_QUADS)
            .map(|&(_, size)| size)
    }

    /// Whether the elements of a tensor's binding are packets of two quads.
    pub(super) fn is_wide(&self, tensor: Tensor) -> bool {
        let fits = match (self.dtype(tensor), self.access_to(tensor)) {
            (_, Access::Exact) | (DType::F64, _) => false,
            (DType::F32, access) => access == Access::LongWords,
            (DType::F16 | DType::Bf16, _) => true,
        };
        tensor.is_data() && self.packet_quads() == Some(2) && fits
    }

    fn dtype(&self, tensor: Tensor) -> DType {
        match tensor {
            Tensor::Sums | Tensor::Workspace => self.accumulator(),
            _ if tensor.is_data() => self.data,
            _ => self.params,
        }
    }

    /// The WGSL text.
    pub fn wgsl(&self) -> String {
        let entry = self.kernel.entry();
        let mut parts = vec![match self.accumulator() {
            DType::F64 => embedded(include_str!("../../shaders/elements/f64.wgsl")),
            _ => embedded(include_str!("../../shaders/elements/f32.wgsl")),
        }];
        let dtypes = [self.data, self.params];
        if dtypes.contains(&DType::F16) {
            parts.push(embedded(include_str!("../../shaders/elements/f16.wgsl")));
        }
        if dtypes.contains(&DType::Bf16) {
            parts.push(embedded(include_str!("../../shaders/elements/bf16.wgsl")));
        }
        if self.access == Access::LongWords {
            parts.push(embedded(include_str!(
                "../../shaders/elements/long_words.wgsl"
            )));
        }
        for (name, size) in &self.sizes {
            parts.push(format!("const {name} = {size}u;\n"));
        }
        parts.push("@group(0) @binding(0) var<uniform> uniforms: Uniforms;\n".to_owned());
        for (index, &tensor) in self.bound.iter().enumerate() {
            parts.push(self.declaration(index + 1, tensor));
        }
        for &tensor in entry.tensors {
            parts.extend(self.accessors(tensor));
        }
        parts.extend(entry.text.iter().map(|&text| embedded(text)));
        parts.join("\n")
    }

    fn declaration(&self, binding: usize, tensor: Tensor) -> String {
        let element = match (tensor, self.dtype(tensor), self.access_to(tensor)) {
            (Tensor::Sums, ..) => "real",
            (_, DType::F16 | DType::Bf16, Access::Quads) if self.is_wide(tensor) => "vec4<u32>",
            (_, DType::F16 | DType::Bf16, _) if self.is_wide(tensor) => "vec2<u64>",
            (_, DType::F32, _) if self.is_wide(tensor) => "vec4<u64>",
            (_, DType::F16 | DType::Bf16, Access::Quads) => "vec2<u32>",
            (_, DType::F16 | DType::Bf16, Access::LongWords) => "u64",
            (_, DType::F16 | DType::Bf16, Access::Exact) => "u32",
            (_, DType::F32 | DType::F64, Access::Quads) => "real4",
            (_, DType::F32 | DType::F64, Access::LongWords) => "vec2<u64>",
            (_, DType::F32 | DType::F64, Access::Exact) => "real",
        };
        let access = ["read", "read_write"][usize::from(self.writes(tensor))];
        let name = tensor.name();
        format!("@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;\n")
    }

    /// How a bound tensor is read and written.
    pub(super) fn access_to(&self, tensor: Tensor) -> Access {
        match self.exact.contains(&tensor) {
            true => Access::Exact,
            false => self.access,
        }
    }

    /// The functions `load_…` of what a kernel reads, `store_…` and `store_part_…` of what it writes; in a kernel
    /// that moves packets `load_packet_…` and so on of its data. In the files of `shaders/access` TENSOR stands for the
    /// tensor's name, ARRAY for its binding, DTYPE for its element type, LENGTH for the uniform with its length.
    fn accessors(&self, tensor: Tensor) -> Vec<String> {
        let through = match tensor {
            Tensor::DiffSrc if self.in_place => Tensor::DiffDst,
            _ => tensor,
        };
        let bound = self.bound.contains(&through);
        let half = matches!(self.dtype(tensor), DType::F16 | DType::Bf16);
        let access = self.access_to(through);
        let (load, store) = match (half, access) {
            _ if !bound => (
                include_str!("../../shaders/access/load_absent.wgsl"),
                include_str!("../../shaders/access/store_absent.wgsl"),
            ),
            (false, _) if self.is_wide(through) => (
                include_str!("../../shaders/access/load_real_long_wide.wgsl"),
                include_str!("../../shaders/access/store_real_long_wide.wgsl"),
            ),
            (true, Access::LongWords) if self.is_wide(through) => (
                include_str!("../../shaders/access/load_half_long_wide.wgsl"),
                include_str!("../../shaders/access/store_half_long_wide.wgsl"),
            ),
            (true, _) if self.is_wide(through) => (
                include_str!("../../shaders/access/load_half_wide.wgsl"),
                include_str!("../../shaders/access/store_half_wide.wgsl"),
            ),
            (false, Access::Quads) => (
                include_str!("../../shaders/access/load_real.wgsl"),
                include_str!("../../shaders/access/store_real.wgsl"),
            ),
            (false, Access::LongWords) => (
                include_str!("../../shaders/access/load_real_long.wgsl"),
                include_str!("../../shaders/access/store_real_long.wgsl"),
            ),
            (false, Access::Exact) => (
                include_str!("../../shaders/access/load_real_exact.wgsl"),
                include_str!("../../shaders/access/store_real_exact.wgsl"),
            ),
            (true, Access::Quads) => (
                include_str!("../../shaders/access/load_half.wgsl"),
                include_str!("../../shaders/access/store_half.wgsl"),
            ),
            (true, Access::LongWords) => (
                include_str!("../../shaders/access/load_half_long.wgsl"),
                include_str!("../../shaders/access/store_half_long.wgsl"),
            ),
            (true, Access::Exact) => (
                include_str!("../../shaders/access/load_half_exact.wgsl"),
                include_str!("../../shaders/access/store_half_exact.wgsl"),
            ),
        };
        let mut templates = match tensor {
            Tensor::Sums if bound => vec![include_str!("../../shaders/access/sums.wgsl")],
            Tensor::Sums => vec![include_str!("../../shaders/access/sums_absent.wgsl")],
            Tensor::Workspace => vec![load, store],
            _ if tensor.is_output() => vec![store],
            _ => vec![load],
        };
        if let (Some(quads), true) = (self.packet_quads(), tensor.is_data()) {
            let wide = bound && self.is_wide(through);
            templates.extend(match (tensor.is_output(), quads, wide) {
                (true, _, true) => Some(include_str!("../../shaders/access/store_wide_part.wgsl")),
                (true, 1, _) => Some(include_str!("../../shaders/access/store_packet.wgsl")),
                (true, ..) => Some(include_str!("../../shaders/access/store_pair.wgsl")),
                (false, _, true) => None,
                (false, 1, _) => Some(include_str!("../../shaders/access/load_packet.wgsl")),
                (false, ..) => Some(include_str!("../../shaders/access/load_pair.wgsl")),
            });
        }
        if self.kernel.shares_quads() && tensor == Tensor::DiffSrc {
            templates.push(match half {
                false => include_str!("../../shaders/access/store_some_real.wgsl"),
                true => include_str!("../../shaders/access/store_some_half.wgsl"),
            });
        }
        let length = match tensor {
            tensor if tensor.is_data() => "length",
            Tensor::Mean | Tensor::Variance if self.kernel.fuses_rows() => "rows",
            Tensor::Gamma | Tensor::DiffGamma | Tensor::DiffBeta
                if self.kernel.is_over_rows() || self.kernel == Kernel::PackWeights =>
            {
                "columns"
            }
            _ => "channels",
        };
        let dtype = self.dtype(tensor).to_string();
        let named = |template: &str| {
            embedded(template)
                .replace("TENSOR", tensor.name())
                .replace("ARRAY", through.name())
                .replace("DTYPE", &dtype)
                .replace("LENGTH", length)
        };
        templates.into_iter().map(named).collect()
    }
}

/// A text of `shaders/`, or what a development build is told to take for it: `WGPU_NORM_SWAP` names a file that holds the
/// text, a NUL and another one. So `tools/mutants` damages kernels without a build for each.
fn embedded(text: &str) -> String {
    #[cfg(debug_assertions)]
    if let Some(path) = std::env::var_os("WGPU_NORM_SWAP")
        && let Ok(swap) = std::fs::read_to_string(path)
        && let Some((from, to)) = swap.split_once('\0')
        && text == from
    {
        return to.to_owned();
    }
    text.to_owned()
}
