#!/bin/sh
# Compiles the kernels that profiles choose for a set of shapes with both compilers of DirectX 12, on a machine without
# Windows: FXC, which wgpu falls back to, and DXC. Prints the time of each in seconds and the size of its output in
# bytes; fails if a kernel is refused. The kernels' texts are those that wgpu passes on, with shader checks and without.
# Takes some minutes.
#
#   tools/directx/run.sh
#
# Needs npm (the compilers come with Dawn's package), Wine (wine, wine64), MinGW (gcc-mingw-w64-x86-64).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kernels=$root/target/hlsl

"$root/tools/tint/install.sh"
rm -f "$kernels/kernels.tsv" # or an old one might pass for this build's
(cd "$root" && cargo test --quiet -p wgpu-norm --lib writes_planned_kernels_for_directx -- --ignored >&2)
x86_64-w64-mingw32-gcc -std=c11 -O1 -Wall -Wextra "$here/compile.c" -o "$kernels/compile.exe"
cp "$root/tools/tint/node_modules/webgpu/dist/win32-x64/d3dcompiler_47.dll" \
    "$root/tools/tint/node_modules/webgpu/dist/win32-x64/dxcompiler.dll" "$kernels"

# Wine has a d3dcompiler_47.dll of its own, which is a different compiler.
export WINEPREFIX="${WINEPREFIX:-$root/target/wine}" WINEDEBUG="${WINEDEBUG:--all}" WINEDLLOVERRIDES=d3dcompiler_47=n
wine=$(command -v wine64 || command -v wine) || {
    echo "Wine is not installed" >&2
    exit 2
}
cd "$kernels"
exec "$wine" compile.exe .
