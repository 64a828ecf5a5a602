//! The files of `shaders/`, and how a kernel's text is put together from them.
//!
//! After its opening comment a file says what it imports, in lines such as
//! `#import tiles, body, columns_aligned if aligned`: the names of parts, `body` for the operator's body, `activation` for
//! the activation, and after `if` or `if not` one of the kernel's constants. The body comes with
//! `shaders/operators/contract.wgsl`, less what the body defines itself.

use std::borrow::Cow;

/// A file of `shaders/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub path: &'static str,
    pub text: &'static str,
}

/// A file by its path in `shaders/`, without the extension.
macro_rules! file {
    ($path:expr) => {
        $crate::kernels::files::File {
            path: concat!("shaders/", $path, ".wgsl"),
            text: include_str!(concat!("../../shaders/", $path, ".wgsl")),
        }
    };
}
pub(super) use file;

macro_rules! parts {
    ($($name:literal)*) => {
        /// The parts that several kernels share, by their names.
        pub(super) const PARTS: &[(&str, File)] = &[
            $(($name, file!(concat!("parts/", $name))),)*
            // Bodies share it.
            ("layer_output", file!("operators/layer_output")),
        ];
    };
}

parts! {
    "axes"
    "batches"
    "channel_records"
    "channels_first"
    "channels_given"
    "channels_recorded"
    "column_partials"
    "columns"
    "columns_aligned"
    "columns_in_registers"
    "columns_misaligned"
    "columns_of_batches"
    "columns_of_channels"
    "columns_of_rows"
    "copied_params"
    "few_partials"
    "grouped_channels"
    "inverse_deviation"
    "mixed_channels"
    "near_zero"
    "no_shuffles"
    "one_channel"
    "paired_sums"
    "params"
    "partials_of_channels"
    "partials_of_splits"
    "plane_apply"
    "plane_edges"
    "plane_reduce"
    "planes_by_teams"
    "planes_by_vectors"
    "positions"
    "realigned"
    "records"
    "row_partials"
    "rows_in_registers"
    "scalars"
    "shuffles"
    "statistics_of_columns"
    "statistics_of_rows"
    "sum_across"
    "team_sum"
    "thread_rows_sum"
    "threads"
    "tiles"
    "vectors"
}

/// The defaults for what a body does not define.
const CONTRACT: File = file!("operators/contract");

/// The names by which files import the operator's body, and the activation.
pub(super) const BODY: &str = "body";
pub(super) const ACTIVATION: &str = "activation";

/// Something that a file imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Import<'a> {
    pub name: &'a str,
    /// The constant that asks for it, and the value with which it does.
    pub condition: Option<(&'a str, bool)>,
}

/// The imports of a text.
pub(super) fn imports(text: &str) -> impl Iterator<Item = Import<'_>> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("#import "));
    let names = lines.flat_map(|line| line.split(", "));
    names.map(|import| match import.split_once(" if ") {
        None => Import {
            name: import,
            condition: None,
        },
        Some((name, condition)) => Import {
            name,
            condition: Some(match condition.strip_prefix("not ") {
                Some(constant) => (constant, false),
                None => (condition, true),
            }),
        },
    })
}

/// The files of a kernel's text, the traversal last; WGSL asks for no order. `holds` says whether a constant is true.
pub(super) fn with_imports(
    traversal: File,
    body: File,
    activation: File,
    holds: &dyn Fn(&str) -> bool,
) -> Vec<File> {
    let mut files = vec![traversal];
    let mut read = 0;
    while let Some(&file) = files.get(read) {
        read += 1;
        for Import { name, condition } in imports(file.text) {
            if condition.is_some_and(|(constant, value)| holds(constant) != value) {
                continue;
            }
            // An unknown name leaves functions undefined, which no compiler accepts; a test finds it before that.
            let imported: &[File] = match name {
                BODY => &[body, CONTRACT],
                ACTIVATION => &[activation],
                name => match PARTS.iter().find(|(part, _)| *part == name) {
                    Some((_, file)) => &[*file],
                    None => &[],
                },
            };
            for file in imported {
                if !files.contains(file) {
                    files.push(*file);
                }
            }
        }
    }
    files.reverse();
    files
}

/// A file's text in a kernel: with its path and without its imports. Of the contract, only what the body does not
/// define.
pub(super) fn composed(file: File, body: File) -> String {
    let text: Cow<'_, str> = if file == CONTRACT {
        let own: Vec<_> = body.text.split("\n\n").filter_map(declared).collect();
        let left = file
            .text
            .split("\n\n")
            .filter(|item| declared(item).is_some_and(|name| !own.contains(&name)));
        left.collect::<Vec<_>>().join("\n\n").into()
    } else {
        file.text.into()
    };
    let mut composed = format!("// ---- {}\n", file.path);
    for line in text.lines().filter(|line| !line.starts_with("#import ")) {
        composed += line;
        composed += "\n";
    }
    composed
}

/// The name that an item of a text declares. A blank line separates items.
fn declared(item: &str) -> Option<&str> {
    let first = item.lines().find(|line| !line.starts_with("//"))?;
    let (_, rest) = first.split_once(' ')?;
    words(rest).next()
}

/// The words of a line of code.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// The words of a text's code, which include everything that it may call or read.
pub(super) fn words_of_code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter_map(|line| line.split("//").next());
    code.flat_map(words)
}
