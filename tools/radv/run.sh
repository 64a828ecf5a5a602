#!/bin/sh
# Compiles the kernels that GPUs are given with RADV, Mesa's Vulkan driver for AMD's GPUs, on a machine without one, and
# prints each one's registers (VGPRs), spilled registers, bytes of workgroup memory, waves that a SIMD can hold at a
# time, and instructions. Times nothing.
#
#   tools/radv/run.sh [FAMILY]        RDNA 2 by default: navi21; others: navi31, vega10, …
#
# Needs a C compiler, Vulkan's headers and loader (libvulkan-dev), RADV (mesa-vulkan-drivers).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
family=${1:-navi21}

driver=
for manifest in "${RADV_MANIFEST:-}" /usr/share/vulkan/icd.d/radeon_icd*.json; do
    if [ -e "$manifest" ]; then driver=$manifest; break; fi
done
if [ -z "$driver" ]; then
    echo "RADV is not installed: no /usr/share/vulkan/icd.d/radeon_icd*.json; RADV_MANIFEST names another" >&2
    exit 2
fi
mkdir -p "$root/target/radv"
"${CC:-cc}" -std=c11 -O1 -Wall -Wextra "$here/registers.c" -o "$root/target/radv/registers" -lvulkan
(cd "$root" && cargo test --quiet --lib writes_the_kernels_of_gpus_for_radv >&2)
RADV_FORCE_FAMILY=$family VK_DRIVER_FILES=$driver VK_ICD_FILENAMES=$driver \
    exec "$root/target/radv/registers" "$root/target/radv"
