#!/bin/sh
# Runs burn-wgpu-norm's layers under Burn's WebGPU backend in a headless Chromium whose WebGPU is SwiftShader.
#
# Needs node, npm and Chromium (scripts/install-drivers.sh --all installs one). The build takes ten minutes or more.
set -eu
cd "$(dirname "$0")/.."

scripts/build-wasm.sh integrations/burn/browser burn_wgpu_norm_browser
(cd web && npm ci --no-audit --no-fund)
node integrations/burn/browser/run.mjs
