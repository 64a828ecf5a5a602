//! What a text is put together from: the files of `shaders/parts/`, each once, as the texts say that they need them.
//!
//! A text's opening comment ends with lines such as `// Needs: tiles, body, rows_aligned if aligned.`: names of parts,
//! `body` for the operator's body, `activation` for the activation, and with `if` or `if not` one of the kernel's constants.

macro_rules! parts {
    ($($name:literal)*) => {
        /// The files by their names.
        const PARTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../shaders/parts/", $name, ".wgsl")))),*];
    };
}

parts! {
    "axes"
    "channels_first"
    "channels_last"
    "column_sums"
    "inverse_deviation"
    "one_cell"
    "paired_sums"
    "params"
    "places"
    "plane_apply"
    "plane_edges"
    "plane_reduce"
    "records"
    "row_sum_subgroup"
    "row_sum_workgroup"
    "rows"
    "rows_aligned"
    "rows_misaligned"
    "rows_split"
    "scalars"
    "thread_rows_sum"
    "threads"
    "tiles"
    "vectors"
    "workgroup_sum"
}

/// The names by which texts need the operator's body, and a body the activation.
pub(super) const BODY: &str = "body";
pub(super) const ACTIVATION: &str = "activation";

/// Something that a text needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub name: &'static str,
    /// The constant that asks for it, and by which value.
    pub condition: Option<(&'static str, bool)>,
}

/// What a text's opening comment says that it needs.
pub(super) fn needs(text: &'static str) -> impl Iterator<Item = Need> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("// Needs: "));
    let names = lines.flat_map(|line| line.trim_end_matches('.').split(", "));
    names.map(|need| match need.split_once(" if ") {
        None => Need {
            name: need,
            condition: None,
        },
        Some((name, condition)) => Need {
            name,
            condition: Some(match condition.strip_prefix("not ") {
                Some(constant) => (constant, false),
                None => (condition, true),
            }),
        },
    })
}

/// The text with all that it needs, each once. `body` and `activation` are the operator's; `holds` says whether a constant is
/// true.
pub(super) fn with_needs(
    text: &'static str,
    body: &'static str,
    activation: &'static str,
    holds: &dyn Fn(&str) -> bool,
) -> Vec<&'static str> {
    let mut texts = vec![text];
    let mut read = 0;
    while let Some(&text) = texts.get(read) {
        read += 1;
        for Need { name, condition } in needs(text) {
            if condition.is_some_and(|(constant, value)| holds(constant) != value) {
                continue;
            }
            // A name that is none leaves functions undefined, which no compiler takes; a test finds it before.
            let part = match name {
                BODY => Some(body),
                ACTIVATION => Some(activation),
                name => PARTS
                    .iter()
                    .find(|(part, _)| *part == name)
                    .map(|(_, text)| *text),
            };
            texts.extend(part.filter(|part| !texts.contains(part)));
        }
    }
    texts.reverse();
    texts
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(name, _)| *name)
}
