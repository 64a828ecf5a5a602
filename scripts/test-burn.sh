#!/bin/sh
# Tests burn-wgpu-norm (integrations/burn): formatting, lints, tests, documentation, the bench once and untimed, and a
# few steps of the example, on software drivers, which it installs if possible.
#
# Burn takes ten minutes or more to build. The build is kept in the user's cache, by lock file and toolchain, so that a
# machine builds it only once.
#
# Environment:
#   CARGO_TARGET_DIR  another folder to build in
#   CI=true           the tests fail on a device without f16
set -eu
cd "$(dirname "$0")/.."
scripts/install-drivers.sh
cd integrations/burn

key=$( (cat Cargo.lock && rustc -V) | cksum | cut -d ' ' -f 1)
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/burn-wgpu-norm/$key}"
# Otherwise the GL driver's search for a Wayland display complains in every process.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"
heading() { printf '\n==== %s\n' "$*"; }

heading "formatting, lints and documentation"
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

heading "tests, and the bench once"
cargo test --locked
cargo test --locked --bench networks -- --small --steps 1

heading "example digits"
cargo run --locked --quiet --example digits -- --steps 10 "$CARGO_TARGET_DIR/digits.svg"
