//! The command `wgpu-norm`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    quiet_wayland();
    wgpu_norm_cli::main()
}

/// Keeps an error that is none off stderr: on Linux, Mesa's Vulkan layer for choosing devices asks for the desktop, if
/// only to know its GPU, and libwayland prints an error where the variable that leads there is not set.
fn quiet_wayland() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    let leads = |folder: OsString| Path::new(&folder).is_absolute();
    if cfg!(target_os = "linux") && !std::env::var_os(VARIABLE).is_some_and(leads) {
        // No desktop can be found either way: this is no folder.
        //
        // SAFETY: nothing reads or writes the environment meanwhile, for this is the process's only thread: it is the
        // first thing that `main` does, and before it Rust's runtime starts none, nor do the C libraries that are
        // loaded then (the C library itself; drivers are loaded later).
        unsafe { std::env::set_var(VARIABLE, "/dev/null") };
    }
}
