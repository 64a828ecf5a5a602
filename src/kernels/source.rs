//! Puts a kernel's text together: element types, bindings, accessors, helpers, the kernel.

use super::accessors::{self, Access, Accessors, Storage};
use super::files::{self, File, file};
use super::params::{self, COPIED_PARAMS, Params};
use super::streams::Streams;
use super::{Body, Constant, Epilogue, Kernel, epilogue, sums};
use crate::element::DType;
use crate::f16_encoder::{F16Encoder, PROBE_WORKGROUP};
use crate::tensor::Tensor;
use std::collections::HashSet;

/// The name of the constant that says how many vec4s a load of data moves, 1 or 2.
pub(super) const VECTOR_VEC4S: &str = "vector_vec4s";

/// The name of the constant that says whether rows share words. The functions that read and write tensors depend on it.
pub(super) const SHARES_WORDS: &str = "shares_words";

/// The name of the constant that says whether several tiles store results in one vec4, each word by word.
pub(super) const SHARES_RESULTS: &str = "shares_results";

/// The name of the constant that says how many rows are loaded before the first is used.
pub(crate) const ROWS_AT_ONCE: &str = "rows_at_once";

/// The names of the constants that say whether invocations add up their sums by subgroups, and how large those are.
pub(crate) const SUBGROUPS: &str = "subgroups";
pub(crate) const SUBGROUP_SIZE: &str = "subgroup_size";

/// The name of the constant that says of how many elements the start of a mask's binding is a multiple.
pub(crate) const MASK_UNIT: &str = "mask_unit";

/// Everything that a pipeline depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Variant {
    pub kernel: Kernel,
    pub body: Body,
    pub epilogue: Epilogue,
    pub data: DType,
    pub params: DType,
    /// The type of mean, variance and running statistics.
    pub statistics: DType,
    /// The tensors that are bound, from binding 0 on; the uniform is the binding after them.
    pub bound: Vec<Tensor>,
    /// diff_src is written through diff_dst's binding.
    pub in_place: bool,
    /// A buffer is bound twice, so every binding is read_write: wgpu allows no other mixture.
    pub pooled: bool,
    /// How all tensors but the exact ones are read and written.
    pub access: Access,
    /// How it rounds to f16.
    pub f16_encoder: F16Encoder,
    /// The bound tensors whose buffers end with them, inside a vec4: [`Access::Exact`].
    pub exact: Vec<Tensor>,
    pub workgroup_size: u32,
    /// The constants that the text begins with.
    pub constants: Vec<(&'static str, Constant)>,
}

/// What a text with this encoder begins with.
fn enabled(encoder: F16Encoder) -> &'static str {
    if encoder == F16Encoder::Cast {
        "enable f16;\n"
    } else {
        ""
    }
}

fn encoder_file(encoder: F16Encoder) -> File {
    match encoder {
        F16Encoder::Integers => file!("elements/f16_integers"),
        F16Encoder::Pack => file!("elements/f16_pack"),
        F16Encoder::Cast => file!("elements/f16_cast"),
    }
}

/// The entry point of an encoder's probe.
pub(crate) const F16_PROBE: &str = "probe";

/// The text that probes an encoder.
pub(crate) fn f16_probe(encoder: F16Encoder) -> String {
    let size = Constant::Size(PROBE_WORKGROUP).declaration("workgroup_size");
    let files = [encoder_file(encoder), file!("elements/f16_probe")];
    [enabled(encoder), files[0].text, &size, files[1].text].join("\n")
}

impl Variant {
    /// Completes the exact tensors, and gives everything that the text does not depend on one value, so that a kernel
    /// is compiled once for all plans.
    pub fn normalized(mut self) -> Self {
        if !self.bound.iter().any(|t| t.is_data()) {
            self.data = self.accumulator();
        }
        // Two rows may share a vec4, but each stores only its own elements, by words: a store to a component of a
        // vector may touch all of it.
        if self.shares_vec4s() {
            let written: Vec<_> = self.written().collect();
            self.exact.extend(written);
        }
        if self.stores_singly() {
            // Invocations store one statistic each, next to others'.
            let stored = self.bound.iter().copied();
            let stored = stored.filter(|&t| t.is_statistic() && self.body.writes(t));
            self.exact.extend(stored);
        }
        if self.is(SHARES_RESULTS) {
            let results = self.bound.iter().copied();
            let results = results.filter(|&t| !t.is_data() && self.body.writes(t));
            self.exact.extend(results);
        }
        // Kernels that touch no element compute no activation.
        if matches!(
            self.kernel,
            Kernel::PackParams | Kernel::PackStatistics | Kernel::Finish | Kernel::CombineGroups
        ) {
            self.epilogue = Epilogue {
                zero_centered_gamma: self.epilogue.zero_centered_gamma,
                gated: self.epilogue.gated && self.kernel != Kernel::PackParams,
                ..Epilogue::default()
            };
        }
        self.epilogue.zero_centered_gamma &= self.bound.contains(&Tensor::Gamma);
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
        if !self.has_f16() {
            self.f16_encoder = F16Encoder::Integers;
        }
        self
    }

    /// The type that the kernel calculates in.
    pub fn accumulator(&self) -> DType {
        self.data.accumulator()
    }

    /// Whether a tensor may be f16.
    pub fn has_f16(&self) -> bool {
        [self.data, self.params, self.statistics].contains(&DType::F16)
    }

    /// Whether a tensor's binding is declared read_write.
    pub fn writes(&self, tensor: Tensor) -> bool {
        self.pooled
            || tensor.is_scratch()
            || self.body.writes(tensor)
            || (self.in_place && tensor == Tensor::DiffDst)
    }

    /// Whether it has a constant of this name that is true.
    pub fn is(&self, name: &str) -> bool {
        self.constants.contains(&(name, Constant::Flag(true)))
    }

    /// Whether subgroups of this size, 0 if there are none, can add up what the planner meant those of its profile to.
    pub fn fits_subgroups(&self, size: u32) -> bool {
        self.constants.iter().all(|&constant| match constant {
            (SUBGROUP_SIZE, Constant::Size(planned)) => {
                planned == 1 || planned <= size && self.workgroup_size.is_multiple_of(size)
            }
            _ => true,
        })
    }

    /// Takes the tree, as where there are no subgroups.
    pub fn add_without_subgroups(&mut self) {
        for (name, value) in &mut self.constants {
            match *name {
                SUBGROUPS => *value = Constant::Flag(false),
                SUBGROUP_SIZE => *value = Constant::Size(1),
                _ => {}
            }
        }
    }

    /// Whether several invocations store a vec4 of an output, each some words of it.
    fn shares_vec4s(&self) -> bool {
        matches!(self.kernel, Kernel::ColumnsWalk | Kernel::InRegisters) && !self.is("aligned")
    }

    /// Whether statistics are stored one by one.
    fn stores_singly(&self) -> bool {
        self.kernel == Kernel::InRegisters && self.is("of_rows") || self.shares_vec4s()
    }

    /// How many vec4s a load of data moves, in a kernel that moves vectors.
    pub(super) fn vector_vec4s(&self) -> Option<u32> {
        self.size(VECTOR_VEC4S)
    }

    /// The value of the constant of this name that is a size.
    fn size(&self, name: &str) -> Option<u32> {
        let mut constants = self.constants.iter();
        constants.find_map(|constant| match *constant {
            (other, Constant::Size(size)) if other == name => Some(size),
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
            Tensor::Mask => DType::F32, // a mask has words of 32 bits, too
            _ if tensor.is_data() => self.data,
            _ if tensor.is_statistic() => self.statistics,
            _ => self.params,
        }
    }

    /// The bindings of the tensors that the body writes element by element.
    fn written(&self) -> impl Iterator<Item = Tensor> {
        let bindings = self.body.outputs().iter();
        bindings.filter_map(|&tensor| self.binding(tensor))
    }

    /// The binding through which a tensor is read and written, if there is one.
    pub(super) fn binding(&self, tensor: Tensor) -> Option<Tensor> {
        let through = match tensor {
            Tensor::DiffSrc if self.in_place => Tensor::DiffDst,
            tensor => tensor,
        };
        self.bound.contains(&through).then_some(through)
    }

    /// The WGSL text.
    pub fn wgsl(&self) -> String {
        let text = self.parts().join("\n");
        #[cfg(wgpu_norm_mutants)]
        let text = super::mutants::damaged(text);
        text
    }

    fn parts(&self) -> Vec<String> {
        let entry = self.kernel.entry();
        let activation = epilogue::file(self.epilogue.computed(self.body));
        let body = self.body.file();
        let files = files::with_imports(entry.file, body, activation, &|name| self.is(name));
        let own: Vec<_> = files
            .into_iter()
            .map(|file| files::composed(file, body))
            .collect();
        let mut called: HashSet<_> = own
            .iter()
            .flat_map(|text| files::words_of_code(text))
            .collect();
        let params = Params {
            bound: &self.bound,
            copied: self.size(COPIED_PARAMS).unwrap_or_default(),
        };
        let made = params.text(&called);
        called.extend(made.iter().flat_map(|text| files::words_of_code(text)));

        let elements = self.elements();
        let mut parts = vec![enabled(self.f16_encoder).to_owned()];
        parts.extend(elements.map(|file| files::composed(file, body)));
        parts.push("// ---- src/kernels/source.rs\n".to_owned());
        parts.push(Constant::Size(self.workgroup_size).declaration("workgroup_size"));
        let of_epilogue = [
            ("residual_after", Constant::Flag(self.epilogue.residual)),
            ("gated", Constant::Flag(self.epilogue.gated)),
            (
                "gate_summed",
                Constant::Flag(self.bound.contains(&Tensor::DiffGate)),
            ),
            ("has_params", Constant::Flag(params.are_there())),
        ];
        let constants = self.body.constants().into_iter().chain(of_epilogue);
        for (name, value) in constants.chain(self.constants.iter().copied()) {
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
        for tensor in Tensor::ALL {
            if tensor.is_data() {
                parts.extend(self.data_accessors(tensor))
            } else {
                parts.extend(self.accessors(tensor, &called))
            }
        }
        let streams = Streams {
            inputs: self.body.inputs(),
            outputs: self.body.outputs(),
            is_bound: &|tensor| self.binding(tensor).is_some(),
            vector_vec4s: self.vector_vec4s(),
        };
        parts.extend(streams.text(&called));
        parts.extend(made.iter().cloned());
        parts.extend(sums::text(self.body.sums(), &called));
        parts.extend(own);
        parts
    }

    /// The files of the element types.
    fn elements(&self) -> impl Iterator<Item = File> {
        let bf16 = [self.data, self.params, self.statistics].contains(&DType::Bf16);
        let real = match self.accumulator() {
            DType::F64 => file!("elements/f64"),
            _ => file!("elements/f32"),
        };
        let all = [
            (true, real),
            (self.has_f16(), file!("elements/f16")),
            (self.has_f16(), encoder_file(self.f16_encoder)),
            (bf16, file!("elements/bf16")),
            (
                self.access == Access::LongWords,
                file!("elements/long_words"),
            ),
        ];
        all.into_iter()
            .filter_map(|(is_there, file)| is_there.then_some(file))
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
        self.shares_vec4s()
            && self.is(SHARES_WORDS)
            && self.data.size() < 4
            && self.written().any(|written| written == tensor)
    }

    /// How a bound tensor is read and written.
    pub(super) fn access_to(&self, tensor: Tensor) -> Access {
        if self.exact.contains(&tensor) {
            Access::Exact
        } else {
            self.access
        }
    }

    /// The functions by which a kernel reads and writes a data tensor; none for one that is not bound.
    fn data_accessors(&self, tensor: Tensor) -> Vec<String> {
        let Some(bound) = self.binding(tensor) else {
            return vec![];
        };
        let entry = self.kernel.entry();
        let accessors = Accessors {
            storage: self.storage(bound),
            tensor: tensor.name(),
            array: bound.name(),
            length: "length",
        };
        let mut texts = Vec::new();
        let vectors = self.vector_vec4s().filter(|_| !accessors.storage.wide);
        if self.body.inputs().contains(&tensor) {
            let masked = tensor == Tensor::DiffDst && self.bound.contains(&Tensor::Mask);
            texts.push(if masked {
                accessors.load_masked(entry.has_window())
            } else {
                accessors.load()
            });
            texts.extend(vectors.map(|vec4s| accessors::load_vectors(tensor.name(), vec4s)));
        }
        if self.body.outputs().contains(&tensor) {
            texts.push(accessors.store());
            if self.shares_vec4s() {
                texts.push(accessors.store_some());
            }
            texts.extend(vectors.map(|vec4s| accessors::store_vectors(tensor.name(), vec4s)));
        }
        texts
    }

    /// The functions of another tensor that a kernel calls. For one that is not bound, they read a constant or write
    /// nothing.
    fn accessors(&self, tensor: Tensor, called: &HashSet<&str>) -> Vec<String> {
        let name = tensor.name();
        let is_called = |prefix: &str| called.contains(&*format!("{prefix}{name}"));
        let is_bound = self.bound.contains(&tensor);
        if tensor == Tensor::Sums {
            let is_called = is_called("load_of_") || is_called("store_of_");
            return is_called
                .then(|| accessors::sums(is_bound))
                .into_iter()
                .collect();
        }
        let entry = self.kernel.entry();
        let accessors = is_bound.then(|| Accessors {
            storage: self.storage(tensor),
            tensor: name,
            array: name,
            length: entry.length(tensor),
        });
        let is_workspace = tensor == Tensor::Workspace;
        let read = accessors
            .as_ref()
            .filter(|_| is_workspace || self.body.reads(tensor));
        let written = accessors
            .as_ref()
            .filter(|_| is_workspace || self.body.writes(tensor));
        let mut texts = Vec::new();
        if is_called("load_") {
            texts.push(match (read, tensor) {
                (Some(accessors), Tensor::Gamma) if self.epilogue.zero_centered_gamma => {
                    accessors.load_plus_one()
                }
                (Some(accessors), _) => accessors.load(),
                (None, _) => accessors::absent_load(name, params::absent(tensor)),
            });
        }
        if is_called("store_") || is_called("store_lanes_") {
            texts.push(match written {
                Some(accessors) => accessors.store(),
                None => accessors::absent_store(name),
            });
        }
        if is_called("store_one_") {
            texts.push(match written.filter(|_| self.stores_singly()) {
                Some(accessors) => accessors.store_one(),
                None => accessors::absent_store_one(name),
            });
        }
        texts
    }
}
