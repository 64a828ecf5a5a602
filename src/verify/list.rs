//! The cases.
//!
//! A line is an ID; `{a,b}` in it stands for one line with a and one with b, as in a shell. An empty choice leaves the
//! part out.

use super::Case;

/// Those that take under a minute on a software driver. What takes long there is to compile kernels: each line takes few
/// element types.
const DEFAULT: &str = "
batch_norm_backward/{5x33x27,4x6x20}/ncx/f32/channels_first
batch_norm_backward/{5x33x27,64x128}/nxc/f32/channels_last
";

/// The others.
const FULL: &str = "
";

/// The list of cases: a share that takes under a minute on a software driver and seconds on a GPU, or the `full` one.
pub fn cases(full: bool) -> Vec<Case> {
    let more = if full { FULL } else { "" };
    let lines = [DEFAULT, more].into_iter().flat_map(str::lines);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let ids = lines.flat_map(expanded);
    // A test reads every one.
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// The lines that a line with choices stands for.
fn expanded(line: &str) -> Vec<String> {
    let choice = line.split_once('{').and_then(|(before, rest)| {
        let (choices, behind) = rest.split_once('}')?;
        Some((before, choices, behind))
    });
    let Some((before, choices, behind)) = choice else {
        return vec![line.replace("//", "/").trim_end_matches('/').to_owned()];
    };
    let each = choices.split(',');
    each.flat_map(|choice| expanded(&format!("{before}{choice}{behind}")))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_is_read_and_no_case_is_there_twice() {
        let lines = [DEFAULT, FULL].into_iter().flat_map(str::lines);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        for id in lines.flat_map(expanded) {
            let case: Case = id.parse().unwrap();
            assert_eq!(case.to_string().parse::<Case>().unwrap(), case, "{id}");
        }
        let all = cases(true);
        let ids: HashSet<_> = all.iter().map(Case::to_string).collect();
        assert_eq!(ids.len(), all.len());
    }
}
