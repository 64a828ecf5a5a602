#!/bin/sh
#   scripts/test-egui.sh [PICTURE.png]
#
# Tests wgpu-norm-egui (integrations/egui): formatting, lints, and the training without a window, which fails unless
# the loss goes down and a picture is drawn; on software drivers, which it installs if possible.
#
# egui takes some minutes to build. The build is kept in the user's cache, by lock file and toolchain, so that a
# machine builds it only once.
#
# Environment:
#   CARGO_TARGET_DIR  another folder to build in
set -eu
cd "$(dirname "$0")/.."
case "${1-}" in
    '' | /*) picture=${1-} ;;
    *) picture=$PWD/$1 ;;
esac
scripts/install-drivers.sh
cd integrations/egui

key=$( (cat Cargo.lock && rustc -V) | cksum | cut -d ' ' -f 1)
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/wgpu-norm-egui/$key}"
# Otherwise the GL driver's search for a Wayland display complains.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"
heading() { printf '\n==== %s\n' "$*"; }

heading "formatting and lints"
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings

heading "training without a window"
picture="${picture:-$CARGO_TARGET_DIR/egui.png}"
mkdir -p "$(dirname "$picture")"
rm -f "$picture"
cargo run --locked --quiet -- --headless "$picture"
# A few hundred bytes would be one color.
if [ "$(wc -c <"$picture")" -lt 8192 ]; then
    echo "$picture is empty" >&2
    exit 1
fi
echo "the loss went down: $picture"
