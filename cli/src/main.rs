//! The command `wgpu-norm`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: it is the first thing that `main` does.
    unsafe { wgpu_norm_cli::quiet_wayland() };
    wgpu_norm_cli::main()
}
