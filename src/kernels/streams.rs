//! The tensors that a body reads and writes element by element, as WGSL: two structs of real4s, and the functions by
//! which traversals move and select them, whichever tensors they are.
//!
//! * `struct Inputs`, `struct Outputs`: four elements of each tensor, in a field of its name
//! * `load_inputs(vec4) -> Inputs`, `store_outputs(vec4, outputs)`, `store_first_outputs(vec4, outputs, count)`,
//!   `store_some_outputs(vec4, outputs, some)`: as [`accessors`](super::accessors) has them for a tensor
//! * `load_vector_inputs(vector) -> VectorInputs`, `store_vector_outputs(vector, VectorOutputs)`,
//!   `store_first_vector_outputs(vector, VectorOutputs, count)`: the same for vectors
//! * `select_inputs(f, t, condition)`, `select_outputs(f, t, condition)`
//! * `splat_inputs(inputs, i)`: element i for all four
//! * `realigned_inputs(own, next, misalignment)`: the four elements that begin `misalignment` elements into `own`
//! * `turned_outputs(outputs, by)`: element i in place of element i + `by`, modulo 4
//!
//! An input that is not bound reads as 0, an output that is not bound is not written. A vec4's inputs are loaded before
//! its outputs are stored, since an output may overwrite an input.

use super::functions::{self, called_of, joined};
use crate::tensor::Tensor;
use std::collections::HashSet;

/// A body's tensors in a kernel.
pub(super) struct Streams<'a> {
    pub inputs: &'a [Tensor],
    pub outputs: &'a [Tensor],
    /// Whether a tensor is bound, perhaps through another's binding.
    pub is_bound: &'a dyn Fn(Tensor) -> bool,
    /// Vec4s in a vector, if the kernel moves vectors.
    pub vector_vec4s: Option<u32>,
}

impl Streams<'_> {
    /// The structs, and the functions that the kernel calls.
    pub fn text(&self, called: &HashSet<&str>) -> Vec<String> {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let vec4s = 0..self.vector_vec4s.unwrap_or_default();
        let mut texts = vec![format!(
            "struct Inputs {{ {} }}\n\nstruct Outputs {{ {} }}\n\n\
             alias VectorInputs = array<Inputs, {}>;\nalias VectorOutputs = array<Outputs, {}>;\n",
            each(inputs, "NAME: real4"),
            each(outputs, "NAME: real4"),
            vec4s.end.max(1),
            vec4s.end.max(1),
        )];
        let loaded = |load: &str| {
            let loads = inputs.iter().map(|&tensor| {
                if (self.is_bound)(tensor) {
                    load.replace("NAME", tensor.name())
                } else {
                    "real4()".to_owned()
                }
            });
            format!("Inputs({})", joined(loads))
        };
        // The last input first: in this order RADV needs fewer registers.
        let read = self.bound(inputs).rev();
        let read = read.map(|name| format!("let {name} = load_vector_{name}(vector); "));
        let vectors = joined(vec4s.clone().map(|k| loaded(&format!("NAME[{k}]"))));
        let stored = |function: &str, more: &str| {
            let stores = self.bound(outputs).map(|name| {
                if function.contains("vector") {
                    let vec4s = joined(vec4s.clone().map(|k| format!("outputs[{k}].{name}")));
                    format!("{function}{name}(vector, Vector({vec4s}){more}); ")
                } else {
                    format!("{function}{name}(vec4_index, outputs.{name}{more}); ")
                }
            });
            stores.collect()
        };
        let select = "select(f.NAME, t.NAME, condition)";
        let made =
            |of: &str, names: &[Tensor], text: &str| format!("return {of}({});", each(names, text));
        let inputs_by = |text: &str| made("Inputs", inputs, text);
        let outputs_by = |text: &str| made("Outputs", outputs, text);
        let functions = [
            (
                "load_inputs(vec4_index: u32) -> Inputs",
                format!("return {};", loaded("load_NAME(vec4_index)")),
            ),
            (
                "load_vector_inputs(vector: u32) -> VectorInputs",
                format!(
                    "{}return VectorInputs({vectors});",
                    read.collect::<String>()
                ),
            ),
            (
                "select_inputs(f: Inputs, t: Inputs, condition: vec4<bool>) -> Inputs",
                inputs_by(select),
            ),
            (
                "splat_inputs(inputs: Inputs, i: u32) -> Inputs",
                inputs_by("real4(inputs.NAME[i])"),
            ),
            (
                "realigned_inputs(own: Inputs, next: Inputs, misalignment: u32) -> Inputs",
                inputs_by("realigned(own.NAME, next.NAME, misalignment)"),
            ),
            (
                "turned_outputs(outputs: Outputs, by: u32) -> Outputs",
                outputs_by("realigned_before(outputs.NAME, outputs.NAME, by)"),
            ),
            (
                "store_outputs(vec4_index: u32, outputs: Outputs)",
                stored("store_", ""),
            ),
            (
                "store_first_outputs(vec4_index: u32, outputs: Outputs, count: u32)",
                stored("store_lanes_", ", vec2(0u, count)"),
            ),
            (
                "store_some_outputs(vec4_index: u32, outputs: Outputs, some: vec4<bool>)",
                stored("store_some_", ", some"),
            ),
            (
                "store_vector_outputs(vector: u32, outputs: VectorOutputs)",
                stored("store_vector_", ""),
            ),
            (
                "store_first_vector_outputs(vector: u32, outputs: VectorOutputs, count: u32)",
                stored("store_first_vector_", ", count"),
            ),
            (
                "select_outputs(f: Outputs, t: Outputs, condition: vec4<bool>) -> Outputs",
                outputs_by(select),
            ),
        ];
        texts.extend(called_of(&functions, called));
        texts
    }

    fn bound(&self, tensors: &[Tensor]) -> impl DoubleEndedIterator<Item = &'static str> {
        let bound = tensors.iter().filter(|&&tensor| (self.is_bound)(tensor));
        bound.map(|tensor| tensor.name())
    }
}

/// Repeats a text about the tensor NAME for each tensor.
fn each(tensors: &[Tensor], text: &str) -> String {
    functions::each(tensors.iter().map(|tensor| tensor.name()), text)
}
