#!/bin/sh
# Compiles the kernels for GPUs with Mesa's Vulkan driver for AMD's GPUs (RADV), Intel's (ANV) or NVIDIA's (NVK), on a
# machine without such a GPU. Prints the driver's numbers for each kernel: the invocations of a subgroup, registers
# (VGPRs), spilled registers, bytes of scratch and of workgroup memory, the waves that a SIMD can hold at a time (from
# RDNA on in units of 32 invocations, though RADV compiles for waves of 64), and instructions (length). The last two
# numbers are instructions an element in the loops that move data, and loads and stores among them: assembly.h. Times
# nothing. Kernels for subgroups of 32 or 64 are for GPUs whose subgroups all have that size: 64 for AMD's before RDNA;
# those for 32 represent other GPUs.
#
#   tools/mesa/run.sh radv [FAMILY]   RDNA 2 by default: navi21; others: navi31, vega10, …
#   tools/mesa/run.sh anv [PCI-ID]    Tiger Lake by default: 9a49; others: 56a0 (Arc A770), 1912 (Skylake), …
#   tools/mesa/run.sh nvk [CHIPSET]   A100 by default: 170; others: 164 (Turing), 172 (Ampere), 192 (Ada)
#
# MESA_MANIFEST is the manifest of another build of the driver than the installed one. NVK comes with Mesa 24.1 or
# later; RUN_IN=DIRECTORY compiles the tool and runs it in the root of another system, with root's rights.
#
# Needs a C compiler, Vulkan's headers and loader (libvulkan-dev), the drivers (mesa-vulkan-drivers), and for ANV
# and NVK libdrm's headers (libdrm-dev).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kernels=$root/target/mesa

driver=${1:-}
case $driver in
radv) name=radeon ;;
anv) name=intel ;;
nvk) name=nouveau ;;
*)
    echo "usage: $0 radv|anv|nvk [GPU]" >&2
    exit 2
    ;;
esac
# Commands run in the other system, which sees the kernels under the same name.
system=${RUN_IN:-}
within() {
    if [ -z "$system" ]; then "$@"; else chroot "$system" "$@"; fi
}
manifest=${MESA_MANIFEST:-}
if [ -z "$manifest" ]; then
    for manifest in "$system"/usr/share/vulkan/icd.d/${name}_icd*.json; do break; done
    manifest=${manifest#"$system"}
fi
if ! [ -e "$system$manifest" ]; then
    echo "the driver is not installed: no $system$manifest; MESA_MANIFEST names another manifest" >&2
    exit 2
fi
mkdir -p "$kernels"
rm -f "$kernels/kernels.tsv" # or an old one might pass for this build's
(cd "$root" && cargo test --quiet -p wgpu-norm --lib writes_the_kernels_of_gpus_for_mesa -- --ignored >&2)
cp "$here"/*.c "$here"/*.h "$kernels"
if [ -n "$system" ]; then
    mkdir -p "$system$kernels"
    cp "$kernels"/* "$system$kernels"
fi
cc=${CC:-cc}
within "$cc" -std=c11 -O1 -Wall -Wextra "$kernels/registers.c" "$kernels/assembly.c" -o "$kernels/registers" -lvulkan

export VK_DRIVER_FILES="$manifest" VK_ICD_FILENAMES="$manifest"
if [ "$driver" = radv ]; then
    # The driver itself compiles for a family without hardware.
    export RADV_FORCE_FAMILY="${2:-navi21}"
    within "$kernels/registers" "$kernels"
    exit
fi
case $driver in
anv) kernel_driver=i915 gpu=${2:-9a49} ;;
nvk) kernel_driver=nouveau gpu=${2:-170} ;;
esac
within "$cc" -std=c11 -O1 -Wall -Wextra -shared -fPIC -I/usr/include/libdrm \
    "$kernels/stand_in.c" "$kernels/$kernel_driver.c" -o "$kernels/stand_in.so" -ldl
within env GPU="$gpu" INTEL_NO_HW=1 LD_PRELOAD="$kernels/stand_in.so" "$kernels/registers" "$kernels"
