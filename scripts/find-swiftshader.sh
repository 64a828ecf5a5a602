#!/bin/sh
# Prints the path of SwiftShader's Vulkan driver manifest, which comes with Chromium and Chrome. If there is none, it
# prints nothing and exits with status 1.
set -eu
for dir in /usr/lib/chromium /usr/lib/chromium-browser /usr/lib64/chromium-browser \
    /opt/google/chrome /opt/chromium.org/chromium; do
    if [ -r "$dir/vk_swiftshader_icd.json" ] && [ -r "$dir/libvk_swiftshader.so" ]; then
        echo "$dir/vk_swiftshader_icd.json"
        exit 0
    fi
done
exit 1
