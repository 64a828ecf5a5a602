//! The command `wgpu-norm`.

use std::process::ExitCode;

fn main() -> ExitCode {
    wgpu_norm_cli::main()
}
