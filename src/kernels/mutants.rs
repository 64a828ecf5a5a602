//! Writes kernels' texts out and damages them on request, only for `tools/mutants`, which builds with
//! `--cfg wgpu_norm_mutants`.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The text, damaged if `WGPU_NORM_SWAP` names a file that holds a piece of it, a NUL and a replacement.
/// `WGPU_NORM_TEXTS` names a folder to which texts are written.
pub(super) fn damaged(text: String) -> String {
    if let Some(folder) = std::env::var_os("WGPU_NORM_TEXTS") {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let name = format!("{:x}.wgsl", hasher.finish());
        // Only the tool wants them.
        let _ = std::fs::write(std::path::Path::new(&folder).join(name), &text);
    }
    if let Some(path) = std::env::var_os("WGPU_NORM_SWAP")
        && let Ok(swap) = std::fs::read_to_string(path)
        && let Some((from, to)) = swap.split_once('\0')
    {
        return text.replace(from, to);
    }
    text
}
