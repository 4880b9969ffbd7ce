// A stand-in for libcuda.so.1: the driver functions that CuPy and the package call, without a GPU.
//
// It loads cubins, checks each call's arguments as the driver API's manual says, and writes a line of JSON per call to
// the file that STANDIN_CALLS names: a launch with a copy of its parameters. It executes nothing, makes no
// context and allocates no memory. The CUDA runtime cannot use it, and is not meant to: it has none of the functions
// by which the runtime finds out about a driver.
//
// The part is given by STANDIN_TARGET (90 for compute capability 9.0), STANDIN_SHARED (bytes that a block
// may have) and STANDIN_VERSION (of CUDA, 12080 for 12.8).

#include <algorithm>
#include <memory>
#include <mutex>

#include "calls.h"
#include "cubin.h"
#include "tensor_maps.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    INVALID_IMAGE = 200,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    LAUNCH_OUT_OF_RESOURCES = 701,
    NOT_SUPPORTED = 801,
    INVALID_CLUSTER_SIZE = 912,
};
const std::map<int, const char *> NAMES = {
    {SUCCESS, "CUDA_SUCCESS"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
    {INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE"},
};
const unsigned PLAIN_SHARED = 48 << 10, REGISTERS = 1 << 16;

struct Module {
    Cubin cubin;
};
struct Function {
    Module *module;
    const Entry *entry;
    unsigned shared; // dynamic bytes that are allowed
};

std::mutex lock; // of all below
std::map<Module *, std::unique_ptr<Module>> modules;
std::map<Function *, std::unique_ptr<Function>> functions;
std::map<std::string, int> refused; // results by call, set by a test

unsigned setting(const char *name) {
    const char *value = getenv(name);
    return value ? strtoul(value, nullptr, 10) : 0;
}

// The result that a test asked for, else SUCCESS.
int asked(const char *call) {
    const auto found = refused.find(call);
    return found == refused.end() ? SUCCESS : found->second;
}

Function *known(void *handle) {
    const auto found = functions.find(static_cast<Function *>(handle));
    return found == functions.end() ? nullptr : found->second.get();
}

struct Asked {
    unsigned grid[3], block[3], shared;
};

// Checks a launch against the entry and the part.
int check(const Function &function, const Asked &launch, std::string &why) {
    const Entry &entry = *function.entry;
    const unsigned most_grid[] = {0x7fffffff, 65535, 65535}, most_block[] = {1024, 1024, 64};
    for (int i = 0; i < 3; ++i) {
        if (!launch.grid[i] || launch.grid[i] > most_grid[i] || !launch.block[i] || launch.block[i] > most_block[i]) {
            why = "a grid or block outside the limits";
            return INVALID_VALUE;
        }
    }
    const uint64_t threads = uint64_t(launch.block[0]) * launch.block[1] * launch.block[2];
    if (threads > std::min(entry.threads, 1024u)) {
        why = "more threads than the launch bounds";
        return INVALID_VALUE;
    }
    if ((entry.registers + 7) / 8 * 8 * ((threads + 31) / 32 * 32) > REGISTERS) {
        why = "more registers than a multiprocessor has";
        return LAUNCH_OUT_OF_RESOURCES;
    }
    if (launch.shared > function.shared) {
        why = "more dynamic shared memory than the function is allowed";
        return INVALID_VALUE;
    }
    if (launch.grid[0] % entry.cluster) { // ours are clusters along x
        why = "a grid that is not made of whole clusters";
        return INVALID_CLUSTER_SIZE;
    }
    return SUCCESS;
}

int write_launch(Line &line, void *handle, const Asked &launch, void *stream, void **parameters, void **extra) {
    Function *function = known(handle);
    if (!function) {
        return line.end(INVALID_HANDLE, "no function of a loaded module");
    }
    line.words("entry", function->entry->name.c_str());
    line.list("grid", {launch.grid, launch.grid + 3});
    line.list("block", {launch.block, launch.block + 3});
    line.number("shared", launch.shared);
    line.number("stream", reinterpret_cast<uintptr_t>(stream));
    std::string why;
    if (const int result = check(*function, launch, why)) {
        return line.end(result, why);
    }
    if (extra || (!parameters && !function->entry->parameters.empty())) {
        return line.end(INVALID_VALUE, "no list of parameters");
    }
    std::vector<uint8_t> block;
    std::vector<uint64_t> places;
    for (size_t i = 0; i < function->entry->parameters.size(); ++i) {
        const auto *from = static_cast<const uint8_t *>(parameters[i]);
        if (!from) {
            return line.end(INVALID_VALUE, "a null pointer in the list of parameters");
        }
        block.insert(block.end(), from, from + function->entry->parameters[i]);
        places.push_back(reinterpret_cast<uintptr_t>(from));
    }
    line.list("sizes", {function->entry->parameters.begin(), function->entry->parameters.end()});
    line.list("at", places);
    line.bytes("passed", block.data(), block.size());
    return line.end(asked("launch"));
}

} // namespace

// Makes every later call of this kind ("cuModuleLoadData", "cuFuncSetAttribute", "launch", "cuTensorMapEncodeTiled")
// end with a result, until 0 is given.
API void standin_refuse(const char *call, int result) {
    const std::lock_guard<std::mutex> held(lock);
    refused[call] = result;
}

API int cuDriverGetVersion(int *version) {
    *version = setting("STANDIN_VERSION");
    return SUCCESS;
}

API int cuGetErrorName(int error, const char **name) {
    const auto found = NAMES.find(error);
    *name = found == NAMES.end() ? nullptr : found->second;
    return found == NAMES.end() ? INVALID_VALUE : SUCCESS;
}

API int cuGetErrorString(int error, const char **text) {
    return cuGetErrorName(error, text);
}

API int cuModuleLoadData(void **module, const void *image) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuModuleLoadData");
    if (!module || !image) {
        return line.end(INVALID_VALUE, "a null pointer");
    }
    auto made = std::make_unique<Module>();
    const std::string why = made->cubin.read(static_cast<const uint8_t *>(image));
    if (!why.empty()) {
        return line.end(INVALID_IMAGE, why);
    }
    const unsigned target = made->cubin.target, part = setting("STANDIN_TARGET");
    line.number("target", target);
    if (made->cubin.specific ? target != part : target / 10 != part / 10 || target > part) {
        return line.end(NO_BINARY_FOR_GPU, "a cubin for another compute capability");
    }
    if (const int result = asked("cuModuleLoadData")) {
        return line.end(result);
    }
    *module = made.get();
    line.number("module", reinterpret_cast<uintptr_t>(*module));
    modules.emplace(made.get(), std::move(made));
    return line.end(SUCCESS);
}

API int cuModuleUnload(void *module) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuModuleUnload");
    if (!modules.count(static_cast<Module *>(module))) {
        return line.end(INVALID_HANDLE, "no loaded module");
    }
    for (auto each = functions.begin(); each != functions.end();) {
        each = each->second->module == module ? functions.erase(each) : std::next(each);
    }
    line.number("module", reinterpret_cast<uintptr_t>(module));
    modules.erase(static_cast<Module *>(module));
    return line.end(SUCCESS);
}

API int cuModuleGetFunction(void **function, void *module, const char *name) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuModuleGetFunction");
    const auto loaded = modules.find(static_cast<Module *>(module));
    if (loaded == modules.end()) {
        return line.end(INVALID_HANDLE, "no loaded module");
    }
    if (!function || !name) {
        return line.end(INVALID_VALUE, "a null pointer");
    }
    line.words("entry", name);
    const auto found = loaded->second->cubin.entries.find(name);
    if (found == loaded->second->cubin.entries.end()) {
        return line.end(NOT_FOUND, "no entry of the module");
    }
    line.list("sizes", {found->second.parameters.begin(), found->second.parameters.end()});
    for (const auto &each : functions) { // a module has one handle for each entry
        if (each.second->entry == &found->second) {
            *function = each.first;
            return line.end(SUCCESS);
        }
    }
    auto made = std::make_unique<Function>(Function{loaded->second.get(), &found->second, PLAIN_SHARED});
    *function = made.get();
    functions.emplace(made.get(), std::move(made));
    return line.end(SUCCESS);
}

API int cuFuncSetAttribute(void *handle, int attribute, int value) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuFuncSetAttribute");
    Function *function = known(handle);
    if (!function) {
        return line.end(INVALID_HANDLE, "no function of a loaded module");
    }
    line.words("entry", function->entry->name.c_str());
    line.number("attribute", attribute);
    line.number("value", value);
    if (attribute != 8) { // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        return line.end(NOT_SUPPORTED, "another attribute");
    }
    // From compute capability 9.0 on the section counts the 1024 bytes that the system reserves beside the limit.
    const unsigned own = function->module->cubin.target >= 90 ? 1024 : 0, fixed = function->entry->static_shared;
    if (value < 0 || value + fixed - std::min(own, fixed) > setting("STANDIN_SHARED")) {
        return line.end(INVALID_VALUE, "more shared memory than a block may have");
    }
    if (const int result = asked("cuFuncSetAttribute")) {
        return line.end(result);
    }
    function->shared = value;
    return line.end(SUCCESS);
}

API int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                       void **extra) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuLaunchKernel");
    const Asked launch{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
    return write_launch(line, function, launch, stream, parameters, extra);
}

struct LaunchAttribute { // CUlaunchAttribute
    int id;
    char pad[4];
    union {
        char all[64];
        int value;
    };
};
struct LaunchConfig { // CUlaunchConfig
    unsigned grid[3], block[3], shared;
    void *stream;
    const LaunchAttribute *attributes;
    unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56, "as in cuda.h");

API int cuLaunchKernelEx(const LaunchConfig *config, void *function, void **parameters, void **extra) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuLaunchKernelEx");
    if (!config || (config->count && !config->attributes)) {
        return line.end(INVALID_VALUE, "a null pointer");
    }
    std::vector<uint64_t> attributes;
    for (unsigned i = 0; i < config->count; ++i) {
        const LaunchAttribute &each = config->attributes[i];
        if (each.id != 6 || each.value < 0 || each.value > 1) { // programmatic stream serialization
            return line.end(NOT_SUPPORTED, "another attribute, or a value that is neither 0 nor 1");
        }
        attributes.insert(attributes.end(), {uint64_t(each.id), uint64_t(each.value)});
    }
    if (setting("STANDIN_TARGET") < 90 && !attributes.empty()) {
        return line.end(NOT_SUPPORTED, "dependent launches need compute capability 9.0");
    }
    line.list("attributes", attributes);
    Asked launch{};
    std::copy(config->grid, config->grid + 3, launch.grid);
    std::copy(config->block, config->block + 3, launch.block);
    launch.shared = config->shared;
    return write_launch(line, function, launch, config->stream, parameters, extra);
}

namespace {

int end_map(Line &line, const std::string &broken, const EncodedMap &map, void *place) {
    if (setting("STANDIN_TARGET") < 90) {
        return line.end(NOT_SUPPORTED, "tensor maps need compute capability 9.0");
    }
    if (!broken.empty()) {
        return line.end(INVALID_VALUE, broken);
    }
    if (const int result = asked("cuTensorMapEncode")) {
        return line.end(result);
    }
    memcpy(place, &map, sizeof map);
    line.bytes("map", place, sizeof map);
    return line.end(SUCCESS);
}

} // namespace

API int cuTensorMapEncodeTiled(void *place, int type, uint32_t rank, void *address, const uint64_t *extents,
                               const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                               int swizzle, int promotion, int fill) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuTensorMapEncodeTiled");
    EncodedMap map;
    std::string broken = begin_map(map, TILED, place, type, rank, reinterpret_cast<uintptr_t>(address), extents,
                                   strides, steps, interleave, swizzle, promotion, fill);
    return end_map(line, broken.empty() ? tiled_box(map, box) : broken, map, place);
}

API int cuTensorMapEncodeIm2col(void *place, int type, uint32_t rank, void *address, const uint64_t *extents,
                                const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                                uint32_t pixels, const uint32_t *steps, int interleave, int swizzle, int promotion,
                                int fill) {
    const std::lock_guard<std::mutex> held(lock);
    Line line("cuTensorMapEncodeIm2col");
    EncodedMap map;
    std::string broken = begin_map(map, IM2COL, place, type, rank, reinterpret_cast<uintptr_t>(address), extents,
                                   strides, steps, interleave, swizzle, promotion, fill);
    return end_map(line, broken.empty() ? im2col_box(map, lower, upper, channels, pixels) : broken, map, place);
}
