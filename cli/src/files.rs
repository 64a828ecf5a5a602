//! Kinds of files, and files that are read whole.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// The maximum size of a text file in bytes: far above that of any of ours.
const MOST_TEXT: u64 = 16 << 20;

/// A failure unless this is a regular file: opening a pipe may block forever, and a device may be endless.
pub fn expect_regular(kind: &Metadata) -> io::Result<()> {
    match kind.is_file() {
        true => Ok(()),
        false => {
            let message = format!("expected a regular file, got {}", kind_of(kind));
            Err(io::Error::other(message))
        }
    }
}

/// Opens a regular file to read it.
pub fn open(path: &Path) -> io::Result<File> {
    expect_regular(&std::fs::metadata(path)?)?;
    File::open(path)
}

/// At most the first `most` bytes of a regular file.
pub fn beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Some files do not report their size.
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a small file.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = beginning(path, MOST_TEXT + 1)?;
    if bytes.len() as u64 > MOST_TEXT {
        let message = format!("expected at most {MOST_TEXT} bytes of text, got more");
        return Err(io::Error::other(message));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::other("expected text in UTF-8, got other bytes"))
}

/// The kind of a file that is not regular.
fn kind_of(kind: &Metadata) -> &'static str {
    if kind.is_dir() {
        return "a directory";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = kind.file_type();
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    "a device"
}
