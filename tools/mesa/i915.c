/* The answers of an Intel GPU's kernel driver, for ANV. GPU is a PCI ID. */
#include "stand_in.h"

#include <errno.h>
#include <i915_drm.h>
#include <string.h>

const uint16_t VENDOR = 0x8086;

static int parameter(int name) {
    switch (name) {
    case I915_PARAM_CHIPSET_ID: return (int)gpu();
    case I915_PARAM_CS_TIMESTAMP_FREQUENCY: return 12000000;
    case I915_PARAM_MMAP_GTT_VERSION: return 4;
    case I915_PARAM_SUBSLICE_MASK: return 7;
    case I915_PARAM_SUBSLICE_TOTAL: return 3;
    case I915_PARAM_EU_TOTAL: return 24;
    default: return 1; /* supported */
    }
}

/* One slice of 6 subslices with 16 execution units each, or of 3 with 8: Skylake's, whose PCI IDs are below 0x4000.
 * Other GPUs before Tiger Lake are not distinguished. */
static void topology(struct drm_i915_query_item *item) {
    enum { SUBSLICES = 6, UNIT_BYTES = 2, BYTES = 1 + 1 + SUBSLICES * UNIT_BYTES };
    if (item->length == 0) {
        item->length = sizeof(struct drm_i915_query_topology_info) + BYTES;
        return;
    }
    int old = gpu() < 0x4000;
    struct drm_i915_query_topology_info *info = (void *)(uintptr_t)item->data_ptr;
    memset(info, 0, sizeof *info + BYTES);
    info->max_slices = 1;
    info->max_subslices = old ? 3 : SUBSLICES;
    info->max_eus_per_subslice = old ? 8 : 16;
    info->subslice_offset = 1;
    info->subslice_stride = 1;
    info->eu_offset = 2;
    info->eu_stride = UNIT_BYTES;
    info->data[0] = 1;
    info->data[1] = (uint8_t)((1 << info->max_subslices) - 1);
    for (int subslice = 0; subslice < info->max_subslices; subslice++) {
        info->data[2 + subslice * UNIT_BYTES] = 0xff;
        info->data[3 + subslice * UNIT_BYTES] = old ? 0 : 0xff;
    }
}

/* System memory, and 16 GiB of the GPU's own. */
static void memory_regions(struct drm_i915_query_item *item) {
    const int count = 2;
    struct drm_i915_query_memory_regions *info = (void *)(uintptr_t)item->data_ptr;
    size_t bytes = sizeof *info + count * sizeof info->regions[0];
    if (item->length == 0) {
        item->length = (int32_t)bytes;
        return;
    }
    memset(info, 0, bytes);
    info->num_regions = count;
    for (int i = 0; i < count; i++) {
        info->regions[i].region.memory_class = i ? I915_MEMORY_CLASS_DEVICE : I915_MEMORY_CLASS_SYSTEM;
        info->regions[i].probed_size = info->regions[i].unallocated_size = 16ull << 30;
    }
}

static void query(const struct drm_i915_query *query) {
    struct drm_i915_query_item *items = (void *)(uintptr_t)query->items_ptr;
    for (uint32_t i = 0; i < query->num_items; i++) {
        switch (items[i].query_id) {
        case DRM_I915_QUERY_TOPOLOGY_INFO: topology(&items[i]); break;
        case DRM_I915_QUERY_MEMORY_REGIONS: memory_regions(&items[i]); break;
        default: items[i].length = -EINVAL;
        }
    }
}

int answer(unsigned long request, void *argument) {
    static uint32_t handles;
    switch (request) {
    case DRM_IOCTL_I915_GETPARAM: {
        struct drm_i915_getparam *asked = argument;
        *asked->value = parameter(asked->param);
        break;
    }
    case DRM_IOCTL_I915_QUERY: query(argument); break;
    case DRM_IOCTL_I915_GEM_CREATE: ((struct drm_i915_gem_create *)argument)->handle = ++handles; break;
    case DRM_IOCTL_I915_GEM_CREATE_EXT: ((struct drm_i915_gem_create_ext *)argument)->handle = ++handles; break;
    case DRM_IOCTL_I915_GEM_CONTEXT_CREATE:
    case DRM_IOCTL_I915_GEM_CONTEXT_CREATE_EXT: ((struct drm_i915_gem_context_create *)argument)->ctx_id = 1; break;
    case DRM_IOCTL_I915_GEM_CONTEXT_GETPARAM: {
        struct drm_i915_gem_context_param *asked = argument;
        asked->value = asked->param == I915_CONTEXT_PARAM_GTT_SIZE ? 1ull << 48 : 1;
        break;
    }
    case DRM_IOCTL_I915_GEM_VM_CREATE: ((struct drm_i915_gem_vm_control *)argument)->vm_id = 1; break;
    default: break; /* done */
    }
    return 0;
}
