#!/bin/sh
# Compiles the kernels for GPUs with Mesa's Vulkan driver for AMD's GPUs (RADV) or Intel's (ANV), on a machine without
# such a GPU. Prints the driver's numbers for each kernel: the invocations of a subgroup, registers (VGPRs), spilled
# registers, bytes of scratch and of workgroup memory, the waves that a SIMD can hold at a time (from RDNA on in units
# of 32 invocations, though RADV compiles for waves of 64), and instructions (length). Times nothing. Kernels for
# subgroups of 32 or 64 are for GPUs whose subgroups all have that size: 64 for AMD's before RDNA; those for 32
# represent other GPUs.
#
#   tools/mesa/run.sh radv [FAMILY]   RDNA 2 by default: navi21; others: navi31, vega10, …
#   tools/mesa/run.sh anv [PCI-ID]    Tiger Lake by default: 9a49; others: 56a0 (Arc A770), 1912 (Skylake), …
#
# MESA_MANIFEST is the manifest of another build of the driver than the installed one.
#
# Needs a C compiler, Vulkan's headers and loader (libvulkan-dev), the drivers (mesa-vulkan-drivers), and for ANV
# libdrm's headers (libdrm-dev).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kernels=$root/target/mesa

driver=${1:-}
case $driver in
radv) name=radeon ;;
anv) name=intel ;;
*)
    echo "usage: $0 radv|anv [GPU]" >&2
    exit 2
    ;;
esac
manifest=${MESA_MANIFEST:-}
if [ -z "$manifest" ]; then
    for manifest in /usr/share/vulkan/icd.d/${name}_icd*.json; do break; done
fi
if ! [ -e "$manifest" ]; then
    echo "the driver is not installed: no $manifest; MESA_MANIFEST names another manifest" >&2
    exit 2
fi
mkdir -p "$kernels"
cc=${CC:-cc}
"$cc" -std=c11 -O1 -Wall -Wextra "$here/registers.c" -o "$kernels/registers" -lvulkan
rm -f "$kernels/kernels.tsv" # or an old one might pass for this build's
(cd "$root" && cargo test --quiet -p wgpu-norm --lib writes_the_kernels_of_gpus_for_mesa -- --ignored >&2)

export VK_DRIVER_FILES="$manifest" VK_ICD_FILENAMES="$manifest"
if [ "$driver" = radv ]; then
    # The driver itself compiles for a family without hardware.
    RADV_FORCE_FAMILY=${2:-navi21} exec "$kernels/registers" "$kernels"
fi
"$cc" -std=c11 -O1 -Wall -Wextra -shared -fPIC -I/usr/include/libdrm "$here/i915.c" -o "$kernels/i915.so" -ldl
GPU=${2:-9a49} INTEL_NO_HW=1 LD_PRELOAD=$kernels/i915.so exec "$kernels/registers" "$kernels"
