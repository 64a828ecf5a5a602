#!/bin/sh
# Prints the path of the Vulkan driver manifest of SwiftShader, which Chromium and Chrome bring with
# them; exit status 1 and nothing printed if there is none.
set -eu
for dir in /usr/lib/chromium /usr/lib/chromium-browser /usr/lib64/chromium-browser \
    /opt/google/chrome /opt/chromium.org/chromium; do
    if [ -r "$dir/vk_swiftshader_icd.json" ] && [ -r "$dir/libvk_swiftshader.so" ]; then
        echo "$dir/vk_swiftshader_icd.json"
        exit 0
    fi
done
exit 1
