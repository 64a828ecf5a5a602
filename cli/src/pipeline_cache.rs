//! The folder of `--pipeline-cache`: what drivers have compiled, a file for each adapter and driver.

use crate::files;
use crate::temporary::Temporary;
use std::cell::RefCell;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;
use wgpu_norm::GpuContext;

/// The most bytes that the folder's files take together. Beyond it, those that were written longest ago are removed.
const LIMIT: u64 = 256 << 20;

/// A file begins with this, then the checksum of the rest.
const MAGIC: &[u8; 8] = b"wgnormP1";

const EXTENSION: &str = "pipelines";

/// An adapter's file.
#[derive(Debug)]
pub struct CacheFile(PathBuf);

impl CacheFile {
    /// None if the adapter's backend has no pipeline cache.
    pub fn new(folder: &Path, adapter: &wgpu::AdapterInfo) -> Option<Self> {
        let key = wgpu::util::pipeline_cache_key(adapter)?;
        let driver = checksum(&(&adapter.name, &adapter.driver, &adapter.driver_info));
        Some(Self(
            folder.join(format!("{key}_{driver:016x}.{EXTENSION}")),
        ))
    }

    /// What an earlier run wrote; nothing if it is not there, or damaged.
    pub fn read(&self) -> Vec<u8> {
        let file = files::beginning(&self.0, LIMIT).unwrap_or_default();
        let sum = file
            .strip_prefix(MAGIC)
            .and_then(|rest| rest.split_first_chunk());
        match sum {
            Some((sum, bytes)) if u64::from_le_bytes(*sum) == checksum(&bytes) => bytes.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Puts these bytes in the place of what is there: other processes find a whole file, the old or the new one.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > LIMIT / 2 {
            return Ok(());
        }
        let folder = self.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = Temporary::beside(&self.0)?;
        file.file().write_all(MAGIC)?;
        file.file().write_all(&checksum(&bytes).to_le_bytes())?;
        file.file().write_all(bytes)?;
        file.replace(&self.0)?;
        self.keep_within(folder, LIMIT)
    }

    /// Removes the oldest other files until all take no more than `limit` bytes.
    fn keep_within(&self, folder: &Path, limit: u64) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            // Another process may have removed it.
            if let Ok(own) = fs::metadata(&path)
                && path.extension().is_some_and(|end| end == EXTENSION)
            {
                files.push((own.modified()?, own.len(), path));
            }
        }
        files.sort();
        let mut all: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if all > limit && path != self.0 {
                let _ = fs::remove_file(&path);
                all -= bytes;
            }
        }
        Ok(())
    }
}

/// The contexts that were opened with a pipeline cache, and the file of each.
#[derive(Clone, Debug, Default)]
pub struct Opened(Rc<RefCell<Vec<(CacheFile, GpuContext)>>>);

impl Opened {
    pub fn add(&self, file: CacheFile, gpu: GpuContext) {
        self.0.borrow_mut().push((file, gpu));
    }

    /// Writes what was compiled. The command's results do not depend on it: a failure is a warning.
    pub fn keep(&self) {
        let mut opened = self.0.borrow_mut();
        let compiled = opened.drain(..);
        let compiled = compiled.filter_map(|(file, gpu)| Some((gpu.pipeline_cache()?, file)));
        let mut compiled: Vec<_> = compiled.collect();
        // Of several contexts on one adapter the one that compiled most stays. The length of what an earlier run wrote
        // says nothing: the driver may have refused it.
        compiled.sort_by_key(|(bytes, _)| bytes.len());
        for (bytes, file) in compiled
            .iter()
            .filter(|(bytes, file)| *bytes != file.read())
        {
            if let Err(error) = file.write(bytes) {
                log::warn!("--pipeline-cache {}: {error}", file.0.display());
            }
        }
    }
}

/// It finds damage, not malice. Another version of Rust may compute another: then a file is written anew.
fn checksum(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_comes_back_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = CacheFile(folder.path().join("deep/a.pipelines"));
        assert!(file.read().is_empty());
        file.write(&[1, 2, 3]).unwrap();
        assert_eq!(file.read(), [1, 2, 3]);
        let whole = fs::read(&file.0).unwrap();
        for length in 0..whole.len() {
            fs::write(&file.0, &whole[..length]).unwrap();
            assert!(file.read().is_empty(), "{length}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&file.0, damaged).unwrap();
            assert!(file.read().is_empty(), "{place}");
        }
        file.write(&[]).unwrap();
        assert!(file.read().is_empty());
    }

    #[test]
    fn the_oldest_files_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c"].map(|name| {
            let file = CacheFile(folder.path().join(format!("{name}.{EXTENSION}")));
            file.write(&[7; 100]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            file
        });
        fs::write(folder.path().join("not ours"), [0; 1000]).unwrap();
        files[0].keep_within(folder.path(), 250).unwrap();
        let there = files.each_ref().map(|file| file.0.exists());
        assert_eq!(there, [true, false, true]);
        assert!(folder.path().join("not ours").exists());
    }
}
