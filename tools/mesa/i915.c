/* Stands in for the kernel driver of an Intel GPU, so that Mesa's Vulkan driver (ANV) opens one and compiles for it.
 * Preloaded into a process, it answers the calls to libdrm and the requests to the file that they name. It executes
 * nothing.
 *
 * The environment variable GPU is the PCI ID of the simulated GPU, in hexadecimal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <i915_drm.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xf86drm.h>

static char path[] = "/dev/dri/stand-in";
static int file = -1;

static int identity(void) {
    const char *gpu = getenv("GPU");
    return gpu ? (int)strtol(gpu, NULL, 16) : 0;
}

/* libdrm: the list of GPUs. */

int drmGetDevice2(int fd, uint32_t flags, drmDevicePtr *found) {
    static char *nodes[DRM_NODE_MAX] = {[DRM_NODE_PRIMARY] = path, [DRM_NODE_RENDER] = path};
    static drmPciBusInfo bus;
    static drmPciDeviceInfo info;
    static drmDevice device = {.nodes = nodes,
                               .available_nodes = 1 << DRM_NODE_PRIMARY | 1 << DRM_NODE_RENDER,
                               .bustype = DRM_BUS_PCI,
                               .businfo.pci = &bus,
                               .deviceinfo.pci = &info};
    (void)fd, (void)flags;
    info.vendor_id = 0x8086;
    info.device_id = (uint16_t)identity();
    *found = &device;
    return 0;
}

int drmGetDevices2(uint32_t flags, drmDevicePtr found[], int most) {
    if (found && most > 0) drmGetDevice2(file, flags, found);
    return 1;
}

void drmFreeDevice(drmDevicePtr *device) { *device = NULL; }

void drmFreeDevices(drmDevicePtr devices[], int count) { (void)devices, (void)count; }

/* The file: each mapping gets its own memory. */

int open64(const char *name, int flags, ...) {
    if (strcmp(name, path) == 0) return file = memfd_create("stand-in", 0);
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return next(name, flags, mode);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset) {
    void *(*next)(void *, size_t, int, int, int, off64_t) =
        (void *(*)(void *, size_t, int, int, int, off64_t))dlsym(RTLD_NEXT, "mmap64");
    if (fd >= 0 && fd == file) return next(address, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return next(address, length, protection, flags, fd, offset);
}

/* The kernel driver's answers about the GPU. */

static int parameter(int name) {
    switch (name) {
    case I915_PARAM_CHIPSET_ID: return identity();
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
    int old = identity() < 0x4000;
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

int ioctl(int fd, unsigned long request, ...) {
    static uint32_t handles;
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (fd < 0 || fd != file) {
        int (*next)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
        return next(fd, request, argument);
    }
    switch (request) {
    case DRM_IOCTL_GET_CAP: ((struct drm_get_cap *)argument)->value = 1; break;
    case DRM_IOCTL_SYNCOBJ_CREATE: ((struct drm_syncobj_create *)argument)->handle = ++handles; break;
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
