//! The tensors that a body reads and writes element by element, as WGSL: two structs of real4s, and the functions by which
//! traversals move and choose them, whichever tensors these are.
//!
//! * `struct Inputs`, `struct Outputs`: four elements of each tensor, of its name
//! * `load_inputs(vec4) -> Inputs`, `store_outputs(vec4, outputs)`, `store_part_outputs(vec4, outputs, count)`,
//!   `store_some_outputs(vec4, outputs, some)`: as [`accessors`](super::accessors) has them of a tensor
//! * `load_vector_inputs(vector) -> VectorInputs`, `store_vector_outputs(vector, VectorOutputs)`,
//!   `store_part_vector_outputs(vector, VectorOutputs, count)`: of vectors
//! * `select_inputs(f, t, condition)`, `select_outputs(f, t, condition)`
//! * `splat_inputs(inputs, i)`: element i for all four
//! * `realigned_inputs(own, next, misalignment)`: those that begin `misalignment` elements into a vec4
//!
//! An input that is not bound reads as 0, an output that is not bound is not written. A vec4's inputs are loaded before its
//! outputs are stored, since an output may take an input's place.

use crate::Tensor;
use std::collections::HashSet;

/// A body's tensors in a kernel.
pub(super) struct Streams<'a> {
    pub inputs: &'a [Tensor],
    pub outputs: &'a [Tensor],
    /// Whether a tensor is bound, perhaps through another's binding.
    pub is_bound: &'a dyn Fn(Tensor) -> bool,
    /// Vec4s of a vector, where a kernel moves vectors.
    pub vector_vec4s: Option<u32>,
}

impl Streams<'_> {
    /// The structs, and those of the functions that a kernel calls.
    pub fn text(&self, called: &HashSet<&str>) -> Vec<String> {
        let mut texts = vec![
            structure("Inputs", self.inputs),
            structure("Outputs", self.outputs),
        ];
        if let Some(vec4s) = self.vector_vec4s {
            texts.push(format!(
                "alias VectorInputs = array<Inputs, {vec4s}>;\nalias VectorOutputs = array<Outputs, {vec4s}>;\n"
            ));
        }
        let functions = [
            ("load_inputs", self.load()),
            ("load_vector_inputs", self.load_vector()),
            ("select_inputs", select("inputs", "Inputs", self.inputs)),
            ("splat_inputs", self.splat()),
            ("realigned_inputs", self.realigned()),
            ("store_outputs", self.store("store_", "")),
            (
                "store_part_outputs",
                self.store("store_part_", ", count: u32"),
            ),
            (
                "store_some_outputs",
                self.store("store_some_", ", some: vec4<bool>"),
            ),
            (
                "store_vector_outputs",
                self.store_vector("store_vector_", ""),
            ),
            (
                "store_part_vector_outputs",
                self.store_vector("store_part_vector_", ", count: u32"),
            ),
            ("select_outputs", select("outputs", "Outputs", self.outputs)),
        ];
        let functions = functions.into_iter();
        texts.extend(functions.filter_map(|(name, text)| called.contains(name).then_some(text)));
        texts
    }

    fn bound(&self, tensors: &[Tensor]) -> impl Iterator<Item = &'static str> {
        let bound = tensors.iter().filter(|&&tensor| (self.is_bound)(tensor));
        bound.map(|tensor| tensor.name())
    }

    fn load(&self) -> String {
        let fields = self
            .inputs
            .iter()
            .map(|&tensor| match (self.is_bound)(tensor) {
                true => format!("load_{}(vec4_index)", tensor.name()),
                false => "real4()".to_owned(),
            });
        let fields = joined(fields);
        format!("fn load_inputs(vec4_index: u32) -> Inputs {{\n    return Inputs({fields});\n}}\n")
    }

    fn load_vector(&self) -> String {
        let mut text = "fn load_vector_inputs(vector: u32) -> VectorInputs {\n".to_owned();
        let names: Vec<_> = self.bound(self.inputs).collect();
        for name in names.into_iter().rev() {
            text += &format!("    let {name} = load_vector_{name}(vector);\n");
        }
        let vec4s = (0..self.vector_vec4s.unwrap_or_default()).map(|k| {
            let fields = self
                .inputs
                .iter()
                .map(|&tensor| match (self.is_bound)(tensor) {
                    true => format!("{}[{k}]", tensor.name()),
                    false => "real4()".to_owned(),
                });
            format!("Inputs({})", joined(fields))
        });
        text + &format!("    return VectorInputs({});\n}}\n", joined(vec4s))
    }

    fn splat(&self) -> String {
        let fields = self.inputs.iter().map(|tensor| {
            let name = tensor.name();
            format!("real4(inputs.{name}[i])")
        });
        let fields = joined(fields);
        format!(
            "fn splat_inputs(inputs: Inputs, i: u32) -> Inputs {{\n    return Inputs({fields});\n}}\n"
        )
    }

    fn realigned(&self) -> String {
        let fields = self.inputs.iter().map(|tensor| {
            let name = tensor.name();
            format!("realigned(own.{name}, next.{name}, misalignment)")
        });
        let fields = joined(fields);
        format!(
            "fn realigned_inputs(own: Inputs, next: Inputs, misalignment: u32) -> Inputs {{\n    return Inputs({fields});\n}}\n"
        )
    }

    /// A function that stores four elements of each output, with a parameter more.
    fn store(&self, prefix: &str, parameter: &str) -> String {
        let argument = argument(parameter);
        let mut text =
            format!("fn {prefix}outputs(vec4_index: u32, outputs: Outputs{parameter}) {{\n");
        for name in self.bound(self.outputs) {
            text += &format!("    {prefix}{name}(vec4_index, outputs.{name}{argument});\n");
        }
        text + "}\n"
    }

    /// The same of vectors.
    fn store_vector(&self, prefix: &str, parameter: &str) -> String {
        let argument = argument(parameter);
        let mut text =
            format!("fn {prefix}outputs(vector: u32, outputs: VectorOutputs{parameter}) {{\n");
        for name in self.bound(self.outputs) {
            let vec4s = 0..self.vector_vec4s.unwrap_or_default();
            let vec4s = joined(vec4s.map(|k| format!("outputs[{k}].{name}")));
            text += &format!("    {prefix}{name}(vector, Vector({vec4s}){argument});\n");
        }
        text + "}\n"
    }
}

fn structure(name: &str, tensors: &[Tensor]) -> String {
    let fields = tensors
        .iter()
        .map(|tensor| format!("    {}: real4,\n", tensor.name()));
    format!("struct {name} {{\n{}}}\n", fields.collect::<String>())
}

fn select(role: &str, structure: &str, tensors: &[Tensor]) -> String {
    let fields = tensors.iter().map(|tensor| {
        let name = tensor.name();
        format!("select(f.{name}, t.{name}, condition)")
    });
    let fields = joined(fields);
    format!(
        "fn select_{role}(f: {structure}, t: {structure}, condition: vec4<bool>) -> {structure} {{\n    \
         return {structure}({fields});\n}}\n"
    )
}

/// The argument that a parameter is handed on as.
fn argument(parameter: &str) -> &str {
    match parameter.split_once(':') {
        Some((name, _)) => name,
        None => "",
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
