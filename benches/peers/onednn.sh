#!/bin/sh
# Times oneDNN's operations on the CPU, with all cores:
#
#     benches/peers/onednn.sh [--json FILE] [--op OP]... [--shape SHAPE]... [--rounds N] [--least]
#
# oneDNN comes from PyPI into a virtual environment under target/ (2 GB: this build runs on SYCL and
# brings Intel's SYCL and OpenCL CPU runtimes and TBB). Needs Linux on x86-64, python3 with venv, g++.
set -eu

version=2026.1.0
here=$(cd "$(dirname "$0")" && pwd)
venv=$here/target/onednn-venv
program=$here/target/onednn

if ! [ -e "$venv/installed-$version" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "onednn==$version" "onednn-devel==$version"
    touch "$venv/installed-$version"
fi
if ! [ "$program" -nt "$here/onednn.cpp" ]; then
    # libdnnl.so itself needs libraries beside it.
    "${CXX:-g++}" -std=c++17 -O2 -Wall -Wextra -I"$venv/include" "$here/onednn.cpp" -o "$program" \
        -L"$venv/lib" -ldnnl -Wl,-rpath-link,"$venv/lib"
fi

# The runtimes are in no directory that the loaders know of: those of the dynamic linker, of OpenCL
# (whose CPU driver SYCL runs on), and of SYCL's choice of a device.
LD_LIBRARY_PATH=$venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
OCL_ICD_FILENAMES=$venv/lib/libintelocl.so
ONEAPI_DEVICE_SELECTOR=opencl:cpu
export LD_LIBRARY_PATH OCL_ICD_FILENAMES ONEAPI_DEVICE_SELECTOR
exec "$program" "$@"
