#!/bin/sh
# Builds the packages that crates.io would get, each from its own files alone. burn-wgpu-norm and wgpu-norm-mpi are not
# among them: they depend on the published wgpu-norm, so that they can be packaged only after it.
set -eu
cd "$(dirname "$0")/.."
cargo package --workspace --locked
for package in wgpu-norm wgpu-norm-cli wgpu-norm-verify; do
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        tar -tf "${CARGO_TARGET_DIR:-target}"/package/$package-[0-9]*.crate | grep -q "/$file$" || {
            echo "$package: $file is not in the package" >&2
            exit 1
        }
    done
done
