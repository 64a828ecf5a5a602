//! Links in documents lead somewhere, both in the repository's view and in rustdoc's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown file that git keeps.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    let skipped = ["target", "node_modules", "dist"];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !skipped.contains(&&*name) {
                documents(&path, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// A document's text without code.
fn prose(text: &str) -> String {
    let fenced = text.split("\n```").step_by(2);
    let lines = fenced.collect::<Vec<_>>().join("\n");
    let code = lines.split('`').step_by(2);
    code.collect::<Vec<_>>().join("`")
}

/// The targets of `[text](target)` and `[label]: target`.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let inline = prose.split("](").skip(1);
    let inline = inline.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let labels = definitions(text).into_values();
    inline.map(str::to_owned).chain(labels).collect()
}

/// The lines `[label]: target`.
fn definitions(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('['));
    let pairs = lines.filter_map(|line| line.split_once("]: "));
    pairs
        .map(|(label, target)| (label.to_owned(), target.to_owned()))
        .collect()
}

/// The anchors of a document's headings, as a repository's view makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn documents_link_to_what_there_is() {
    let mut found = Vec::new();
    documents(root(), &mut found);
    assert!(found.len() > 15, "only {} documents", found.len());
    let mut dead = Vec::new();
    for document in &found {
        let text = fs::read_to_string(document).unwrap();
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            let leads = file.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor));
            if !leads {
                dead.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// A label of the guide is defined twice: at the end of its page, and for rustdoc in `src/guide.rs`, where the first
/// definition wins.
#[test]
fn labels_of_the_guide_have_both_targets() {
    let module = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    let mut pages = 0;
    for part in module.split("pub mod ") {
        let Some((before, after)) = part.split_once("include_str!(\"..") else {
            continue;
        };
        pages += 1;
        let (page, _) = after.split_once('"').unwrap();
        let text = fs::read_to_string(format!("{}{page}", root().display())).unwrap();
        let docs: String = before
            .lines()
            .map(|line| line.trim_start_matches("/// ").to_owned() + "\n")
            .collect();
        let (items, files) = (definitions(&docs), definitions(&text));
        let used: BTreeSet<_> = prose(&text)
            .split("][")
            .skip(1)
            .filter_map(|rest| rest.split_once(']'))
            .map(|(label, _)| label.to_owned())
            .collect();
        let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(keys(&items), used, "labels of {page} in src/guide.rs");
        assert_eq!(keys(&files), used, "labels at the end of {page}");
        assert!(
            !text.contains("](crate"),
            "{page}: a link that only rustdoc follows"
        );
    }
    assert_eq!(pages, 4);
}
