#!/bin/sh
# Builds the page in web/, and runs every part of it in a headless Chromium whose WebGPU is SwiftShader.
#
#   scripts/test-page.sh [FOLDER]     the folder for screenshots and the page's report [default: web/target/page]
#
# Needs node, npm and Chromium (scripts/install-drivers.sh --all installs one); scripts/build-page.sh installs the rest.
set -eu
cd "$(dirname "$0")/.."

(cd web && cargo fmt --check && cargo clippy --all-targets -- -D warnings)
scripts/build-page.sh
(cd web && npm ci --no-audit --no-fund)
out=${1:-web/target/page}
node web/test/run.mjs "$out"

# The command reads the page's report.
cargo run -p wgpu-norm-cli -- report "$out" --redraw

# The page's program outside a browser: the digits' kernels and networks, and the times' arithmetic.
(cd web && WGPU_NORM_COMMAND=$PWD/../target/debug/wgpu-norm cargo test)
