#!/bin/sh
# Tests wgpu-norm-mpi (integrations/mpi): formatting, lints, documentation, and ranks under mpirun, with software
# drivers and MPI, which it installs if possible.
#
# Environment:
#   CARGO_TARGET_DIR  a folder to build in, other than the crate's own
set -eu
cd "$(dirname "$0")/.."
scripts/install-drivers.sh
scripts/install-mpi.sh
cd integrations/mpi

heading() { printf '\n==== %s\n' "$*"; }
# Otherwise the GL driver's search for a Wayland display complains in every process.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"

heading "formatting, lints and documentation"
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

heading "ranks"
cargo test --locked

heading "example weak_scaling, on two ranks"
cargo build --locked --example weak_scaling
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    mpirun -n 2 "${CARGO_TARGET_DIR:-target}/debug/examples/weak_scaling"
