#!/bin/sh
# Packs everything that `wgpu-norm report` needs on a machine that may have only a GPU's driver; docs/measuring-a-gpu.md
# explains how to use it there.
#
#     sh scripts/pack-report.sh FOLDER [BINARY]
set -eu

[ $# -ge 1 ] || { echo "usage: $0 FOLDER [BINARY]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
binary=${2:-$root/target/release/wgpu-norm}
if [ $# -lt 2 ]; then
    cargo build --release --manifest-path "$root/Cargo.toml"
fi
mkdir -p "$1"
cp "$binary" "$1/wgpu-norm"
cp "$root/benches/peers/pytorch.py" "$root/docs/measuring-a-gpu.md" "$root"/scripts/measure-gpu.* "$1/"
echo '{ "file_format_version": "1.0.0", "ICD": { "library_path": "libGLX_nvidia.so.0", "api_version": "1.3.0" } }' \
    >"$1/nvidia_icd.json"
case $(uname -m) in
    x86_64) abi=x86-64 ;;
    aarch64) abi=AArch64 ;;
    *) abi=libc6 ;;
esac
loader=$(ldconfig -p 2>/dev/null | awk -v abi="$abi" '/libvulkan\.so\.1 / && index($0, abi) { print $NF; exit }')
if [ -n "$loader" ]; then
    cp -L "$loader" "$1/libvulkan.so.1"
else
    echo "no libvulkan.so.1 here: the other machine must have one" >&2
fi
ls -l "$1"
