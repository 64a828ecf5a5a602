/* The answers of an NVIDIA GPU's kernel driver, for NVK. GPU is a chipset: 164 (Turing), 170 (A100), 172 (Ampere), 192
 * (Ada). */
#include "stand_in.h"

#include <asm/types.h> /* the next two need it */

#include <nouveau/nvif/cl0080.h>
#include <nouveau/nvif/ioctl.h>
#include <nouveau_drm.h>
#include <string.h>
#include <xf86drm.h>

const uint16_t VENDOR = 0x10de;

/* The classes of a GPU's engines: copies, 2D, 3D, inline copies, compute. */
enum { ENGINES = 5 };
static const int32_t *classes(void) {
    static const int32_t turing[ENGINES] = {0xc5b5, 0x902d, 0xc597, 0xa140, 0xc5c0};
    static const int32_t a100[ENGINES] = {0xc6b5, 0x902d, 0xc697, 0xa140, 0xc6c0};
    static const int32_t ampere[ENGINES] = {0xc7b5, 0x902d, 0xc797, 0xa140, 0xc7c0};
    static const int32_t ada[ENGINES] = {0xc7b5, 0x902d, 0xc997, 0xa140, 0xc9c0};
    if (gpu() >= 0x190) return ada;
    if (gpu() > 0x170) return ampere;
    return gpu() == 0x170 ? a100 : turing;
}

static void describe(struct nv_device_info_v0 *info) {
    info->platform = NV_DEVICE_INFO_V0_PCIE;
    info->chipset = (uint16_t)gpu();
    info->ram_size = info->ram_user = 16ull << 30;
    strcpy(info->name, "stand-in");
}

/* Requests about the GPU come in an envelope of their own. */
static void open_envelope(struct nvif_ioctl_v0 *envelope) {
    if (envelope->type == NVIF_IOCTL_V0_MTHD) {
        struct nvif_ioctl_mthd_v0 *call = (void *)envelope->data;
        if (call->method == NV_DEVICE_V0_INFO) describe((void *)call->data);
    } else if (envelope->type == NVIF_IOCTL_V0_SCLASS) {
        struct nvif_ioctl_sclass_v0 *list = (void *)envelope->data;
        for (int i = 0; i < ENGINES && i < list->count; i++) list->oclass[i].oclass = classes()[i];
    }
}

static uint64_t parameter(uint64_t name) {
    switch (name) {
    case NOUVEAU_GETPARAM_PCI_DEVICE: return gpu();
    case NOUVEAU_GETPARAM_GRAPH_UNITS: return 8 << 8 | 1; /* clusters of processors, and groups of these */
    default: return 1;
    }
}

int answer(unsigned long request, void *argument) {
    static uint32_t handles;
    if (request == DRM_IOCTL_VERSION) {
        struct drm_version *version = argument;
        version->version_major = 1;
        version->version_minor = 4;
        if (version->name) memcpy(version->name, "nouveau", version->name_len);
        version->name_len = strlen("nouveau");
        version->date_len = version->desc_len = 0;
        return 0;
    }
    switch (DRM_IOCTL_NR(request) - DRM_COMMAND_BASE) {
    case DRM_NOUVEAU_NVIF: open_envelope(argument); break;
    case DRM_NOUVEAU_GETPARAM: {
        struct drm_nouveau_getparam *asked = argument;
        asked->value = parameter(asked->param);
        break;
    }
    case DRM_NOUVEAU_GEM_NEW: ((struct drm_nouveau_gem_new *)argument)->info.handle = ++handles; break;
    default: break; /* done */
    }
    return 0;
}
