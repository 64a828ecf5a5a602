#!/bin/sh
# Compiles the kernels that GPUs are given with RADV, Mesa's Vulkan driver for AMD's GPUs, on a machine without one, and
# prints each one's registers (VGPRs), spilled registers, bytes of scratch and of workgroup memory, waves that a SIMD can
# hold at a time as the driver counts them (from RDNA on by 32 invocations, though it compiles for waves of 64), and
# instructions. Times nothing. Kernels for subgroups of 32, which this driver has none of, stand for what other GPUs get.
#
#   tools/radv/run.sh [FAMILY]        RDNA 2 by default: navi21; others: navi31, vega10, …
#
# RADV_MANIFEST names another build of the driver than the installed one, by its manifest.
#
# Needs a C compiler, Vulkan's headers and loader (libvulkan-dev), RADV (mesa-vulkan-drivers).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
family=${1:-navi21}

driver=${RADV_MANIFEST:-}
if [ -z "$driver" ]; then
    for driver in /usr/share/vulkan/icd.d/radeon_icd*.json; do break; done
fi
if ! [ -e "$driver" ]; then
    echo "RADV is not installed: no $driver; RADV_MANIFEST names another manifest" >&2
    exit 2
fi
mkdir -p "$root/target/radv"
"${CC:-cc}" -std=c11 -O1 -Wall -Wextra "$here/registers.c" -o "$root/target/radv/registers" -lvulkan
rm -f "$root/target/radv/kernels.tsv" # or an old one might pass for this build's
(cd "$root" && cargo test --quiet --lib writes_the_kernels_of_gpus_for_radv >&2)
RADV_FORCE_FAMILY=$family VK_DRIVER_FILES=$driver VK_ICD_FILENAMES=$driver \
    exec "$root/target/radv/registers" "$root/target/radv"
