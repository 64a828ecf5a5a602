/* Prints how a Vulkan driver of Mesa compiles compute shaders: registers, spills, occupancy, instructions. No GPU is
 * needed; see run.sh.
 *
 *   registers DIRECTORY
 *
 * DIRECTORY has `kernels.tsv` (file, entry point, workgroup size, storage bindings, elements of a load or store, data
 * tensors read and written, description) and the files it names: SPIR-V with a uniform buffer at binding 0 and storage
 * buffers after it. Exits with 1 if a shader is refused. */
#define _POSIX_C_SOURCE 200809L
#include "assembly.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

static void check(VkResult result, const char *what) {
    if (result == VK_SUCCESS) return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(2);
}

/* An array of structs that Vulkan fills. */
static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) abort();
    return memory;
}

static VkDevice open_device(void) {
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo instance_info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    VkInstance instance;
    check(vkCreateInstance(&instance_info, NULL, &instance), "vkCreateInstance");
    uint32_t count = 1;
    VkPhysicalDevice adapter;
    VkResult found = vkEnumeratePhysicalDevices(instance, &count, &adapter);
    check(found == VK_INCOMPLETE ? VK_SUCCESS : found, "vkEnumeratePhysicalDevices");
    if (count == 0) {
        fprintf(stderr, "the driver offers no device\n");
        exit(2);
    }
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(adapter, &properties);
    printf("%s, driver %u.%u.%u\n", properties.deviceName, VK_API_VERSION_MAJOR(properties.driverVersion),
           VK_API_VERSION_MINOR(properties.driverVersion), VK_API_VERSION_PATCH(properties.driverVersion));

    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pipelineExecutableInfo = VK_TRUE};
    const char *extension = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkDeviceCreateInfo device_info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                      .pNext = &features,
                                      .queueCreateInfoCount = 1,
                                      .pQueueCreateInfos = &queue,
                                      .enabledExtensionCount = 1,
                                      .ppEnabledExtensionNames = &extension};
    VkDevice device;
    check(vkCreateDevice(adapter, &device_info, NULL, &device), "vkCreateDevice");
    return device;
}

static VkShaderModule load(VkDevice device, const char *directory, const char *file) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, file);
    FILE *stream = fopen(path, "rb");
    if (!stream) {
        perror(path);
        exit(2);
    }
    static uint32_t words[1 << 20];
    size_t size = fread(words, 1, sizeof words, stream);
    fclose(stream);
    VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size, .pCode = words};
    VkShaderModule module;
    check(vkCreateShaderModule(device, &info, NULL, &module), path);
    return module;
}

static VkPipelineLayout lay_out(VkDevice device, uint32_t storage) {
    VkDescriptorSetLayoutBinding *bindings = zeroed(storage + 1, sizeof *bindings);
    for (uint32_t i = 0; i <= storage; i++) {
        bindings[i].binding = i;
        bindings[i].descriptorCount = 1;
        bindings[i].stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
        bindings[i].descriptorType = i ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    }
    VkDescriptorSetLayoutCreateInfo set_info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                .bindingCount = storage + 1,
                                                .pBindings = bindings};
    VkDescriptorSetLayout set;
    check(vkCreateDescriptorSetLayout(device, &set_info, NULL, &set), "vkCreateDescriptorSetLayout");
    free(bindings);
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &set};
    VkPipelineLayout layout;
    check(vkCreatePipelineLayout(device, &info, NULL, &layout), "vkCreatePipelineLayout");
    return layout;
}

/* A column of the table, and the drivers' names for it. */
static const struct {
    const char *title;
    const char *names[3];
} COLUMNS[] = {
    {"VGPRs", {"VGPRs", "Number of GPRs"}},
    {"spills", {"Spilled VGPRs", "Spill Count"}},
    {"fills", {"Fill Count"}},
    {"scratch", {"Scratch size", "Scratch Memory Size", "SLM Size"}},
    {"shared", {"LDS size", "Workgroup Memory Size"}},
    {"waves", {"Subgroups per SIMD"}},
    {"length", {"Instructions", "Instruction Count", "Instruction count"}},
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof COLUMNS[0], SPILLS = 1, SCRATCH = 3 };

static int is_a(const char *name, int column) {
    for (int i = 0; i < 3; i++)
        if (COLUMNS[column].names[i] && !strcmp(name, COLUMNS[column].names[i])) return 1;
    return 0;
}

static void print_head(void) {
    printf("%-15s %9s %8s", "kernel", "workgroup", "subgroup");
    for (int column = 0; column < COLUMN_COUNT; column++) printf(" %7s", COLUMNS[column].title);
    printf(" %7s %7s  for\n", "instr/e", "mem/e");
}

static struct costs read_costs(VkDevice device, VkPipeline pipeline, const struct moved *moved) {
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR get_representations =
        (PFN_vkGetPipelineExecutableInternalRepresentationsKHR)vkGetDeviceProcAddr(
            device, "vkGetPipelineExecutableInternalRepresentationsKHR");
    VkPipelineExecutableInfoKHR executable = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    uint32_t count = 0;
    check(get_representations(device, &executable, &count, NULL), "vkGetPipelineExecutableInternalRepresentationsKHR");
    VkPipelineExecutableInternalRepresentationKHR *texts = zeroed(count, sizeof *texts);
    for (uint32_t i = 0; i < count; i++)
        texts[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    get_representations(device, &executable, &count, texts); /* their sizes */
    for (uint32_t i = 0; i < count; i++) texts[i].pData = zeroed(texts[i].dataSize + 1, 1);
    get_representations(device, &executable, &count, texts);
    struct costs costs = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        if (strstr(texts[i].name, "ssembly")) costs = costs_of(texts[i].pData, moved);
        free(texts[i].pData);
    }
    free(texts);
    return costs;
}

/* Returns whether registers are spilled, or arrays are not in registers. */
static int print_statistics(VkDevice device, VkPipeline pipeline) {
    PFN_vkGetPipelineExecutablePropertiesKHR get_properties =
        (PFN_vkGetPipelineExecutablePropertiesKHR)vkGetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR");
    PFN_vkGetPipelineExecutableStatisticsKHR get_statistics =
        (PFN_vkGetPipelineExecutableStatisticsKHR)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR");
    VkPipelineInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    uint32_t count = 1;
    VkPipelineExecutablePropertiesKHR properties = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    if (get_properties(device, &info, &count, &properties) < 0 || count == 0) {
        fprintf(stderr, "the driver reports nothing about its shaders\n");
        exit(2);
    }
    VkPipelineExecutableInfoKHR executable = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    check(get_statistics(device, &executable, &count, NULL), "vkGetPipelineExecutableStatisticsKHR");
    VkPipelineExecutableStatisticKHR *statistics = zeroed(count, sizeof *statistics);
    for (uint32_t i = 0; i < count; i++)
        statistics[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    check(get_statistics(device, &executable, &count, statistics), "vkGetPipelineExecutableStatisticsKHR");
    unsigned long long spills = 0;
    printf(" %8u", properties.subgroupSize);
    for (int column = 0; column < COLUMN_COUNT; column++) {
        char text[32] = "-"; /* not every driver reports all of them */
        for (uint32_t i = 0; i < count; i++) {
            if (!is_a(statistics[i].name, column)) continue;
            snprintf(text, sizeof text, "%llu", (unsigned long long)statistics[i].value.u64);
            if (column == SPILLS || column == SCRATCH) spills |= statistics[i].value.u64;
        }
        printf(" %7s", text);
    }
    free(statistics);
    return spills > 0;
}

enum result { COMPILED, SPILLED, REFUSED };

/* Compiles a kernel and prints its row. */
static enum result compile(VkDevice device, const char *directory, char *line) {
    char file[256], entry[256];
    unsigned workgroup_size, storage;
    struct moved moved;
    int described = 0;
    if (sscanf(line, "%255s %255s %u %u %u %u %u %n", file, entry, &workgroup_size, &storage, &moved.elements,
               &moved.inputs, &moved.outputs, &described) < 7) {
        fprintf(stderr, "not a kernel: %s", line);
        return REFUSED;
    }
    line[strcspn(line, "\n")] = 0;
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                 VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = load(device, directory, file),
                  .pName = entry},
        .layout = lay_out(device, storage)};
    VkPipeline pipeline;
    if (vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline) != VK_SUCCESS) {
        printf("%-15s refused  %s\n", entry, line + described);
        return REFUSED;
    }
    printf("%-15s %9u", entry, workgroup_size);
    int spills = print_statistics(device, pipeline);
    struct costs costs = read_costs(device, pipeline, &moved);
    if (costs.instructions > 0) printf(" %7.1f %7.2f", costs.instructions, costs.memory);
    else printf(" %7s %7s", "-", "-");
    printf("  %s\n", line + described);
    vkDestroyPipeline(device, pipeline, NULL);
    return spills ? SPILLED : COMPILED;
}

/* Compiles a kernel in a process of its own: RADV (22.3, 25.0) crashes on three kernels for RDNA 2 by subgroups of 64
 * alone, which GPUs of that family do not have. */
static enum result compile_apart(VkDevice device, const char *directory, char *line) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        enum result result = compile(device, directory, line);
        fflush(stdout);
        _exit((int)result);
    }
    int status;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)) return (enum result)WEXITSTATUS(status);
    printf("the compiler crashed: %s", line);
    return REFUSED;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/kernels.tsv", argv[1]);
    FILE *list = fopen(path, "r");
    if (!list) {
        perror(path);
        return 2;
    }
    VkDevice device = open_device();
    unsigned results[] = {0, 0, 0};
    print_head();
    char line[4096];
    while (fgets(line, sizeof line, list)) results[compile_apart(device, argv[1], line)]++;
    fclose(list);
    unsigned compiled = results[COMPILED] + results[SPILLED];
    printf("%u kernels, %u spill registers or need scratch memory, %u refused\n", compiled + results[REFUSED],
           results[SPILLED], results[REFUSED]);
    return compiled == 0 || results[REFUSED] > 0;
}
