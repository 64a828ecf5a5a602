//! Prints the WGSL of an operation's kernels, with the source file of each part:
//!
//! ```sh
//! cargo run --example wgsl -- layer_norm_backward/64x256/f32
//! ```
//!
//! The operation is a case's ID as printed by `wgpu-norm verify`; the case may force the algorithm. The plan is for a
//! GPU with WebGPU's default limits.

use wgpu_norm::{BufferUse, Profile};
use wgpu_norm_verify::Case;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let id = std::env::args().nth(1);
    let id = id.unwrap_or("layer_norm_backward/64x256/f32".to_owned());
    let case: Case = id.parse()?;
    let mut profile = Profile::webgpu("a GPU");
    profile.algorithm = case.algorithm();

    let plan = case.operation().plan(&profile)?;
    let buffers = plan.buffers();
    let room = |tensor| {
        let mut buffers = buffers.iter().filter(|used| used.tensor == tensor);
        buffers.next().map(|used: &BufferUse| used.padded_bytes)
    };
    for (number, dispatch) in plan.dispatches(room)?.iter().enumerate() {
        let [x, y] = dispatch.workgroups;
        let name = dispatch.kernel.entry_point();
        println!("// ==== dispatch {number}: {name}, {x} x {y} workgroups\n");
        println!("{}", dispatch.kernel.wgsl());
    }
    Ok(())
}
