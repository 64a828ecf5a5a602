//! The folder of `--pipeline-cache`.

use super::*;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Runs with a cache in this folder and returns the only file there; none if the adapter has no such cache.
fn cached(folder: &Path, what: &str) -> Option<(PathBuf, Output)> {
    let cache = folder.join("cache");
    let input = folder.join("in");
    std::fs::write(&input, Draft::good().bytes()).unwrap();
    let mut command = command(&[BATCH_NORM, "--pipeline-cache"]);
    command.arg(&cache).arg(&input).arg("-o");
    let result = files::promptly(command.arg(folder.join("out")), what);
    assert_success(&result);
    let written = names(&cache);
    let Some(name) = written.first() else {
        println!("not tested: the adapter has no pipeline cache");
        return None;
    };
    assert_eq!(written.len(), 1, "{what}: {written:?}");
    Some((cache.join(name), result))
}

/// A file that is whole, with this content.
fn whole(content: &[u8]) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    [b"wgnormP1", &hasher.finish().to_le_bytes()[..], content].concat()
}

/// The bytes before a file's content.
const BEFORE: usize = 16;

#[test]
fn a_file_of_another_build_is_replaced() {
    let folder = folder("build");
    std::fs::create_dir(folder.join("cache")).unwrap();
    let Some((file, _)) = cached(&folder, "new") else {
        return;
    };
    let own = std::fs::read(&file).unwrap();
    assert_eq!(whole(&own[BEFORE..]), own);
    cached(&folder, "again");
    assert_eq!(std::fs::read(&file).unwrap(), own);
    // wgpu's magic number, its version and the driver's key, which the driver has in its own header, too.
    for at in [0, 8, 40, 64 + 16] {
        for extra in [0, 1 << 20] {
            let mut other = own[BEFORE..].to_vec();
            other[at] ^= 1;
            other.resize(other.len() + extra, 7);
            std::fs::write(&file, whole(&other)).unwrap();
            cached(&folder, "other");
            let now = std::fs::read(&file).unwrap();
            assert!(now == own, "byte {at}, {extra} bytes longer");
        }
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_replaced() {
    use std::os::unix::fs::symlink;
    let folder = folder("endless");
    std::fs::create_dir(folder.join("cache")).unwrap();
    let Some((file, _)) = cached(&folder, "new") else {
        return;
    };
    let own = std::fs::read(&file).unwrap();
    let replace = |what: &str| {
        cached(&folder, what);
        assert!(
            std::fs::symlink_metadata(&file).unwrap().is_file(),
            "{what}"
        );
        assert!(std::fs::read(&file).unwrap() == own, "{what}");
        std::fs::remove_file(&file).unwrap();
    };
    std::fs::remove_file(&file).unwrap();
    symlink("/dev/zero", &file).unwrap();
    replace("a link to a device");
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    replace("a pipe");
    let large = std::fs::File::create(&file).unwrap();
    large.set_len(1 << 40).unwrap(); // of nothing
    replace("a large file");
}

#[test]
fn warnings_name_folder_and_file() {
    let folder = folder("warnings");
    std::fs::create_dir(folder.join("cache")).unwrap();
    let Some((file, _)) = cached(&folder, "new") else {
        return;
    };
    // No file can take the place of a folder.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let (_, result) = cached(&folder, "a folder").unwrap();
    let said = stderr(&result);
    let named = format!("warning: --pipeline-cache {}: ", file.display());
    assert!(said.contains(&named), "{said}");
    // Nor be in a file.
    std::fs::remove_dir_all(folder.join("cache")).unwrap();
    std::fs::write(folder.join("cache"), "").unwrap();
    let mut command = command(&[BATCH_NORM, "--pipeline-cache"]);
    command.arg(folder.join("cache")).arg(folder.join("in"));
    let result = command.arg("-o").arg(folder.join("out")).output().unwrap();
    assert_success(&result);
    assert!(stderr(&result).contains(&named), "{}", stderr(&result));
}
