//! The parameters of a layer, as WGSL: a struct of real4s, and the functions by which traversals load, move and select
//! them, whichever they are.
//!
//! * `struct Params`: a field for each, of its name
//! * `neutral_params()`: those of a layer without any
//! * `load_params(vec4) -> Params`: those of four elements or channels; `given_params(vec4)`: also where they are
//!   copies in the workspace
//! * `load_param(vec4) -> real4`: the only one that is bound
//! * `select_params(f, t, condition)`, `splat_params(params, i)`, `realigned_params(own, next, misalignment)`: as
//!   [`streams`](super::streams) has them for data
//! * `params_side_by_side(a, b, c, d)`: the first element of each
//!
//! One that is not bound reads as its neutral value.

use super::functions::{called_of, each, joined};
use crate::tensor::Tensor;
use std::collections::HashSet;

/// The parameters, and their neutral values.
const PARAMS: [(Tensor, &str); 3] = [
    (Tensor::Gamma, "real4(1.0)"),
    (Tensor::Beta, "real4()"),
    (Tensor::Gate, "real4(1.0)"),
];

/// The name of the constant that says which parameters are copies in the workspace, one after another: bit i for i.
pub(crate) const COPIED_PARAMS: &str = "copied_params";

/// A parameter's bit.
pub(crate) fn bit(param: Tensor) -> u32 {
    let position = PARAMS.iter().position(|(other, _)| *other == param);
    position.map_or(0, |position| 1 << position)
}

/// What a tensor reads as where it is not bound.
pub(super) fn absent(tensor: Tensor) -> &'static str {
    let param = PARAMS.iter().find(|(param, _)| *param == tensor);
    param.map_or("real4()", |(_, neutral)| neutral)
}

/// The parameters in a kernel.
pub(super) struct Params<'a> {
    /// The tensors that are bound.
    pub bound: &'a [Tensor],
    pub copied: u32,
}

impl Params<'_> {
    /// Whether elements depend on any.
    pub fn are_there(&self) -> bool {
        self.copied != 0 || self.bound().next().is_some()
    }

    /// The struct, and the functions that the kernel calls.
    pub fn text(&self, called: &HashSet<&str>) -> Vec<String> {
        let each = |text| each(PARAMS.iter().map(|(param, _)| param.name()), text);
        let made = |fields: String| format!("return Params({fields});");
        let neutral = PARAMS.iter().map(|(_, neutral)| (*neutral).to_owned());
        let loaded = format!(
            "return joined_params(Params({}));",
            each("load_NAME(vec4_index)")
        );
        let copied = PARAMS.iter().map(|&(param, neutral)| {
            let bit = bit(param);
            format!("copied_param({bit}u, {neutral}, vec4_index)")
        });
        let copied = format!("return joined_params(Params({}));", joined(copied));
        let load = |param: Tensor| format!("return load_{}(vec4_index);", param.name());
        let only = self.bound().next().map(load).unwrap_or_default();
        let functions = [
            ("neutral_params() -> Params", made(joined(neutral))),
            (
                "given_params(vec4_index: u32) -> Params",
                format!("if copied_params != 0u {{ {copied} }} {loaded}"),
            ),
            ("load_params(vec4_index: u32) -> Params", loaded),
            ("load_param(vec4_index: u32) -> real4", only),
            (
                "select_params(f: Params, t: Params, condition: vec4<bool>) -> Params",
                made(each("select(f.NAME, t.NAME, condition)")),
            ),
            (
                "splat_params(params: Params, i: u32) -> Params",
                made(each("real4(params.NAME[i])")),
            ),
            (
                "realigned_params(own: Params, next: Params, misalignment: u32) -> Params",
                made(each("realigned(own.NAME, next.NAME, misalignment)")),
            ),
            (
                "params_side_by_side(a: Params, b: Params, c: Params, d: Params) -> Params",
                made(each("real4(a.NAME.x, b.NAME.x, c.NAME.x, d.NAME.x)")),
            ),
        ];
        let record = format!("struct Params {{ {} }}\n", each("NAME: real4"));
        [record]
            .into_iter()
            .chain(called_of(&functions, called))
            .collect()
    }

    fn bound(&self) -> impl Iterator<Item = Tensor> {
        let params = PARAMS.iter().map(|(param, _)| *param);
        params.filter(|param| self.bound.contains(param))
    }
}
