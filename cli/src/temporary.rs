//! A file that is written beside its place and then moved there. If the command fails or is ended before that, no file
//! is left behind.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::{Builder, NamedTempFile};

/// The file that is being written, if any. Locked while it appears or moves.
static CURRENT: Mutex<Option<PathBuf>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<PathBuf>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the file that is being written, if any: for a process that ends without unwinding.
pub fn remove_current() {
    if let Some(path) = current().take() {
        let _ = std::fs::remove_file(path);
    }
}

/// A file that is removed when dropped, and when a signal ends the command.
pub struct Temporary(NamedTempFile);

impl Temporary {
    /// An empty file in the folder of `target`, with the mode of the file there, or else of a new file.
    pub fn beside(target: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        unix::watch_signals()?;
        let mut builder = Builder::new();
        builder.prefix(".wgpu-norm-").suffix(".tmp");
        let replaced = std::fs::metadata(target).ok();
        #[cfg(unix)]
        if replaced.is_none() {
            builder.permissions(unix::of_a_new_file());
        }
        let mut current = current();
        let file = builder.tempfile_in(folder_of(target))?;
        *current = Some(file.path().to_owned());
        drop(current);
        let temporary = Self(file);
        if let Some(replaced) = replaced {
            temporary
                .0
                .as_file()
                .set_permissions(replaced.permissions())?;
        }
        Ok(temporary)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file, to write to.
    pub fn file(&mut self) -> &mut File {
        self.0.as_file_mut()
    }

    /// Moves it to `target`, in place of what is there.
    pub fn replace(self, target: &Path) -> io::Result<()> {
        // The content must be on the disk before the name is.
        self.0.as_file().sync_all()?;
        let mut current = current();
        self.0.persist(target).map_err(|error| error.error)?;
        *current = None;
        drop(current);
        // Makes the new name durable where folders can be synchronized; the file is whole in any case.
        #[cfg(unix)]
        let _ = File::open(folder_of(target)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// The folder that a path is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{
        SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ,
    };
    use std::fs::Permissions;
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Arc, Once};

    /// Signals that end a process from outside: a terminal that closes, a person, a batch system.
    const ENDING: [i32; 8] = [
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGALRM, SIGUSR1, SIGUSR2,
    ];

    /// The mode that files are created with, before the umask.
    pub fn of_a_new_file() -> Permissions {
        Permissions::from_mode(0o666)
    }

    /// From now on, a signal that ends the command removes the file first. The signal still ends the command, so that a
    /// shell sees 128 plus the signal's number as the exit status. Signals that do not end it are left alone: those
    /// that the caller ignores, as with `nohup`, and those that have a handler.
    pub fn watch_signals() -> io::Result<()> {
        static WATCHED: Once = Once::new();
        let mut result = Ok(());
        WATCHED.call_once(|| result = start());
        result
    }

    fn start() -> io::Result<()> {
        if ends(SIGXFSZ) {
            // With SIGXFSZ ignored, the write that exceeds the limit fails and says why.
            signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        }
        let ending = ENDING.into_iter().filter(|&signal| ends(signal));
        let mut signals = signal_hook::iterator::Signals::new(ending)?;
        let watch = move || {
            for signal in signals.forever() {
                // Stays locked to the end, so that no other file appears.
                let current = super::current();
                if let Some(path) = &*current {
                    let _ = std::fs::remove_file(path);
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(watch).map(drop)
    }

    /// Whether a signal that by default ends a process does so here.
    fn ends(signal: i32) -> bool {
        // SAFETY: all zeros are a valid value of this C struct.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is set, and the present action is written to a live struct.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        asked == 0 && action.sa_sigaction == libc::SIG_DFL
    }
}
