#!/bin/sh
# Builds a crate for browsers: its program for wasm32, and the JavaScript around it, in FOLDER/pkg.
#
#   scripts/build-wasm.sh FOLDER NAME      NAME is the crate's library
#
# Installs Rust's target wasm32-unknown-unknown (by rustup) and the wasm-bindgen command in the crate's version (by
# cargo, in FOLDER/target/tools), if they are missing. RUSTC names another compiler, as for cargo.
set -eu
cd "$1"
name=$2

heading() { printf '\n==== %s\n' "$*"; }

heading "wasm32"
if ! [ -d "$("${RUSTC:-rustc}" --print sysroot)/lib/rustlib/wasm32-unknown-unknown/lib" ]; then
    command -v rustup >/dev/null || {
        echo "build-wasm: Rust's target wasm32-unknown-unknown is not installed, and there is no rustup" >&2
        exit 1
    }
    rustup target add wasm32-unknown-unknown
fi
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --target wasm32-unknown-unknown

heading "wasm-bindgen"
version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)
PATH=$PWD/target/tools/bin:$PATH
if [ "$(wasm-bindgen --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
    # A tool of this machine, whatever compiles the crate.
    env -u RUSTC cargo install wasm-bindgen-cli --version "$version" --root target/tools \
        --target-dir target/tools/build
fi
rm -rf pkg
wasm-bindgen --target web --no-typescript --out-dir pkg "$target/wasm32-unknown-unknown/release/$name.wasm"
