//! WGSL functions that are made from lists of names.

use std::collections::HashSet;

/// Those of `functions`, each a signature and its code, that the kernel calls.
pub(super) fn called_of<'a>(
    functions: &'a [(impl AsRef<str>, String)],
    called: &HashSet<&str>,
) -> Vec<String> {
    let functions = functions
        .iter()
        .map(|(signature, code)| (signature.as_ref(), code));
    let name = |signature: &'a str| signature.split('(').next().unwrap_or_default();
    functions
        .filter(|(signature, _)| called.contains(name(signature)))
        .map(|(signature, code)| {
            let code = code.trim_end().replace("; ", ";\n    ");
            format!("fn {signature} {{\n    {code}\n}}\n")
        })
        .collect()
}

/// Repeats a text about NAME for each name.
pub(super) fn each<'a>(names: impl IntoIterator<Item = &'a str>, text: &str) -> String {
    joined(names.into_iter().map(|name| text.replace("NAME", name)))
}

pub(super) fn joined(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(", ")
}
