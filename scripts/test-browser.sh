#!/bin/sh
# Runs every kernel in a browser: builds the page in tests/browser for wasm32 and opens it in a headless Chromium, whose
# WebGPU compiles the kernels with Tint and runs them on SwiftShader. The page compares the results with the float64
# reference. It is not part of scripts/test.sh, which needs only Rust's default target.
#
#   scripts/test-browser.sh
#
# Needs node, Chromium (scripts/install-drivers.sh --all installs one), Rust's target wasm32-unknown-unknown (installed
# by rustup if missing) and the wasm-bindgen command in the page's version (built by cargo if missing).
set -eu
cd "$(dirname "$0")/../tests/browser"

heading() { printf '\n==== %s\n' "$*"; }
missing() { # what
    echo "test-browser: $1" >&2
    exit 1
}
has() { command -v "$1" >/dev/null; }

has node || missing "node is not installed"
chromium=
for name in chromium chromium-browser google-chrome; do
    if [ -z "$chromium" ] && has "$name"; then chromium=$name; fi
done
[ -n "$chromium" ] || missing "Chromium is not installed (scripts/install-drivers.sh --all)"

heading "wasm32"
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown/lib" ]; then
    has rustup || missing "Rust's target wasm32-unknown-unknown is not installed, and there is no rustup"
    rustup target add wasm32-unknown-unknown
fi
cargo build --release --locked --target wasm32-unknown-unknown

heading "wasm-bindgen"
version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)
PATH=$PWD/target/tools/bin:$PATH
if [ "$(wasm-bindgen --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
    cargo install wasm-bindgen-cli --version "$version" --root target/tools --target-dir target/tools/build
fi
rm -rf pkg
wasm-bindgen --target web --no-typescript --out-dir pkg \
    target/wasm32-unknown-unknown/release/wgpu_norm_browser.wasm

heading "the page in $chromium"
node run.mjs "$chromium"
