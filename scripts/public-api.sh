#!/bin/sh
# Lists the public items of wgpu-norm in docs/public-api.txt, or shows how they differ from that list.
#
#   scripts/public-api.sh           writes the list
#   scripts/public-api.sh --check   prints the difference, and fails if there is one
#
# Needs cargo-public-api (cargo install cargo-public-api --locked). RUSTC_BOOTSTRAP lets a stable rustdoc write JSON.
set -eu
cd "$(dirname "$0")/.."
list=docs/public-api.txt
new=$(mktemp)
trap 'rm -f "$new"' EXIT
RUSTC_BOOTSTRAP=1 cargo public-api --package wgpu-norm --features safetensors -sss >"$new"
case "${1-}" in
    --check) diff -u "$list" "$new" ;;
    '') cp "$new" "$list" ;;
    *)
        echo "usage: $0 [--check]" >&2
        exit 2
        ;;
esac
