/* Prints how a Vulkan driver of Mesa compiles compute shaders: registers, spills, occupancy. No GPU is needed; see
 * run.sh.
 *
 *   registers DIRECTORY
 *
 * DIRECTORY has `kernels.tsv` (file, entry point, workgroup size, storage bindings, description) and the files it
 * names: SPIR-V with a uniform buffer at binding 0 and storage buffers after it. Exits with 1 if a shader is
 * refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    const char *names[2];
} COLUMNS[] = {
    {"VGPRs", {"VGPRs"}},
    {"spills", {"Spilled VGPRs", "Spill Count"}},
    {"fills", {"Fill Count"}},
    {"scratch", {"Scratch size", "Scratch Memory Size"}},
    {"shared", {"LDS size", "Workgroup Memory Size"}},
    {"waves", {"Subgroups per SIMD"}},
    {"length", {"Instructions", "Instruction Count"}},
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof COLUMNS[0], SPILLS = 1, SCRATCH = 3 };

static int is_a(const char *name, int column) {
    for (int i = 0; i < 2; i++)
        if (COLUMNS[column].names[i] && !strcmp(name, COLUMNS[column].names[i])) return 1;
    return 0;
}

static void print_head(void) {
    printf("%-15s %9s %8s", "kernel", "workgroup", "subgroup");
    for (int column = 0; column < COLUMN_COUNT; column++) printf(" %7s", COLUMNS[column].title);
    printf("  for\n");
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
    unsigned compiled = 0, refused = 0, spilling = 0;
    print_head();
    char line[4096];
    while (fgets(line, sizeof line, list)) {
        char file[256], entry[256];
        unsigned workgroup_size, storage;
        int described = 0;
        if (sscanf(line, "%255s %255s %u %u %n", file, entry, &workgroup_size, &storage, &described) < 4) {
            fprintf(stderr, "not a kernel: %s", line);
            return 2;
        }
        line[strcspn(line, "\n")] = 0;
        VkComputePipelineCreateInfo info = {
            .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR,
            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                      .module = load(device, argv[1], file),
                      .pName = entry},
            .layout = lay_out(device, storage)};
        VkPipeline pipeline;
        if (vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline) != VK_SUCCESS) {
            printf("%-15s refused  %s\n", entry, line + described);
            refused++;
            continue;
        }
        compiled++;
        printf("%-15s %9u", entry, workgroup_size);
        spilling += print_statistics(device, pipeline);
        printf("  %s\n", line + described);
        vkDestroyPipeline(device, pipeline, NULL);
    }
    fclose(list);
    printf("%u kernels, %u spill registers or need scratch memory, %u refused\n", compiled + refused, spilling, refused);
    return compiled == 0 || refused > 0;
}
