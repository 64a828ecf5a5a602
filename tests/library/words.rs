//! Words that the glossary of ARCHITECTURE.md no longer uses.

use std::path::Path;

/// Every file below a folder.
fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Whether a text contains a word as a whole word.
fn stands_in(text: &str, word: &str) -> bool {
    let is_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + word.len()..]);
        !is_of_word(before.chars().next_back()) && !is_of_word(behind.chars().next())
    })
}

#[test]
fn words_that_were_given_up_stay_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let glossary = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, given_up) = glossary.split_once("Words that no longer stand").unwrap();
    let (given_up, _) = given_up.split_once("\n\n").unwrap();
    let words: Vec<_> = given_up.split('`').skip(1).step_by(2).collect();
    assert!(words.len() > 10, "{words:?}");
    let mut all = Vec::new();
    for folder in [
        "src",
        "shaders",
        "cli/src",
        "verify/src",
        "integrations/burn/src",
        "integrations/egui/src",
        "integrations/mpi/src",
        "examples",
        "benches",
        "docs",
        "web/src",
        "web/page",
    ] {
        files(&root.join(folder), &mut all);
    }
    let is_text = |path: &std::path::PathBuf| {
        let known = ["rs", "wgsl", "md", "js", "html"];
        path.extension()
            .is_some_and(|own| known.iter().any(|k| *k == own))
    };
    all.retain(is_text);
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in &words {
            // Rust itself uses this word.
            let is_of_rust = *word == "second" && path.extension().is_some_and(|own| own == "rs");
            assert!(
                is_of_rust || !stands_in(&text, word),
                "{word} in {}",
                path.display()
            );
        }
    }
}

/// Traversals and parts traverse whatever tensors a body lists, and do not take records apart.
#[test]
fn traversals_know_no_tensor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for folder in ["shaders/traversals", "shaders/parts"] {
        files(&root.join(folder), &mut all);
    }
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        let is_traversal = path.parent().is_some_and(|own| own.ends_with("traversals"));
        let writes_mask = path.ends_with("flat_apply.wgsl");
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let named = ["src", "dst", "residual", "diff_"].map(|name| code.contains(name));
            let masked = code.contains("mask") && !writes_mask;
            let taken_apart = is_traversal
                && [".xy", ".zw", ".gamma", ".beta"]
                    .iter()
                    .any(|part| code.contains(part));
            let is_clean = !named.contains(&true) && !masked && !taken_apart;
            assert!(is_clean, "{}: {line}", path.display());
        }
    }
}
