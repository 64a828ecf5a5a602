/* Stands in for a GPU's kernel driver, so that Mesa's Vulkan driver opens a GPU and compiles for it. Preloaded into a
 * process, it answers the calls to libdrm and the requests to the file that they name. It executes nothing.
 *
 * The environment variable GPU names the simulated GPU, in hexadecimal: i915.c and nouveau.c say how. */
#define _GNU_SOURCE
#include "stand_in.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xf86drm.h>

/* A character device, as drivers expect, which nothing else opens here. */
static char path[] = "/dev/full";
enum { MOST_FILES = 64 };
static int files[MOST_FILES];
static int file_count;

static int is_ours(int fd) {
    for (int i = 0; i < file_count; i++)
        if (files[i] == fd) return 1;
    return 0;
}

uint32_t gpu(void) {
    const char *name = getenv("GPU");
    return name ? (uint32_t)strtol(name, NULL, 16) : 0;
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
    info.vendor_id = VENDOR;
    info.device_id = (uint16_t)gpu();
    *found = &device;
    return 0;
}

int drmGetDeviceFromDevId(dev_t node, uint32_t flags, drmDevicePtr *found) {
    (void)node;
    return drmGetDevice2(-1, flags, found);
}

int drmGetDevices2(uint32_t flags, drmDevicePtr found[], int most) {
    if (found && most > 0) drmGetDevice2(-1, flags, found);
    return 1;
}

void drmFreeDevice(drmDevicePtr *device) { *device = NULL; }

void drmFreeDevices(drmDevicePtr devices[], int count) { (void)devices, (void)count; }

/* The file: each mapping gets its own memory. */

int open64(const char *name, int flags, ...) {
    if (strcmp(name, path) == 0) {
        if (file_count == MOST_FILES) return -1;
        return files[file_count++] = memfd_create("stand-in", 0);
    }
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
    if (is_ours(fd)) return next(address, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return next(address, length, protection, flags, fd, offset);
}

int ioctl(int fd, unsigned long request, ...) {
    static uint32_t handles;
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (!is_ours(fd)) {
        int (*next)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
        return next(fd, request, argument);
    }
    switch (request) {
    case DRM_IOCTL_GET_CAP: ((struct drm_get_cap *)argument)->value = 1; return 0;
    case DRM_IOCTL_SYNCOBJ_CREATE: ((struct drm_syncobj_create *)argument)->handle = ++handles; return 0;
    default: return answer(request, argument);
    }
}
