// A CUDA driver for tests: built as libcuda.so.1, it "allocates" host memory, writes one line per call that
// matters to a log, and fails where the environment says so. Nothing is executed.
//
//   FAKE_CUDA_VERSION   what cuDriverGetVersion reports (12080)
//   FAKE_CUDA_DEVICES   compute capabilities, one per device ("9.0,8.6"); "none" for no device
//   FAKE_CUDA_FAIL_LOAD "needle=code,...": code that contains the needle is refused with that CUresult
//   FAKE_CUDA_MEMORY    bytes of device memory (8 GiB)
//   FAKE_CUDA_LOG       path of the log; none by default
//   FAKE_CUDA_NO_POOLS  set: as on a device without memory pools
//   FAKE_CUDA_SLOW_MS   how long waiting for a stream or an event, and loading code, take (0)
// A stream that is captured collects nodes instead of doing things, and refuses what the real one refuses.
// Compiled with -DWITHOUT_LIBRARY it is a driver without cuLibrary*.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NO_DEVICE = 100, NOT_FOUND = 500,
       NOT_SUPPORTED = 801, INVALID_CONTEXT = 201, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
       CAPTURE_ISOLATION = 905, CAPTURE_WRONG_THREAD = 908 };
enum { MAX_DEVICES = 8, MAX_BLOCKS = 65536, MAX_CAPTURES = 64, MAX_STREAMS = 65536, RELAXED = 2,
       INVALID_HANDLE = 400, MAP_BYTES = 128 };

#define EXPORT __attribute__((visibility("default")))

typedef struct { int major, minor; } Capability;
typedef struct { CUdeviceptr address; size_t size; int device; } Block;
typedef struct { int device; } Context;
typedef struct { char target[64]; } Library;
typedef struct { char name[256]; int shared; } Function;
typedef struct { unsigned long long stamp; struct Capture *capture; } Event;
typedef struct UserObject { void (*destroy)(void *); void *object; int references; } UserObject;
typedef struct { size_t nodes; UserObject *held[8]; } Graph;
typedef struct Capture { void *stream; const int *thread; size_t nodes; int is_invalid; unsigned long long id; Graph *graph; } Capture;

static Capability capabilities[MAX_DEVICES];
static int device_count = -1;
static Context contexts[MAX_DEVICES];
static __thread Context *stack[16];
static __thread int depth = 0;
static Block blocks[MAX_BLOCKS];
static size_t block_count = 0, used_bytes = 0;
static FILE *log_file = NULL;
static unsigned long long stamps = 0;
static Capture captures[MAX_CAPTURES];
static int stream_devices[MAX_STREAMS];  // of stream 0x1000 + 16 * i, plus 1; -1 once it is destroyed
static __thread int capture_mode = 1, capture_count = 0;

static const char *knob(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value ? value : NULL;
}

#define LOG(...) \
    do { \
        if (log_file != NULL) { \
            fprintf(log_file, __VA_ARGS__); \
            fflush(log_file); \
        } \
    } while (0)

static Capture *capture_of(void *stream)
{
    for (int i = 0; stream != NULL && i < MAX_CAPTURES; i++) {
        if (captures[i].stream == stream) {
            return &captures[i];
        }
    }
    return NULL;
}

// What happens on a stream: a node if it is captured, else the thing itself.
static int is_node(void *stream, const char *what)
{
    Capture *capture = capture_of(stream);
    if (capture == NULL) {
        return 0;
    }
    capture->nodes++;
    LOG("node %s\n", what);
    return 1;
}

// What a thread may not do while it captures, unless it said "relaxed".
static int is_unsafe(void) { return capture_count > 0 && capture_mode != RELAXED; }

static CUresult refuse_capture(void *stream)
{
    Capture *capture = capture_of(stream);
    if (capture != NULL) {
        capture->is_invalid = 1;
    }
    return capture != NULL || is_unsafe() ? CAPTURE_UNSUPPORTED : SUCCESS;
}

static void take_time(void)
{
    const char *value = knob("FAKE_CUDA_SLOW_MS");
    if (value != NULL) {
        struct timespec time = {0, atol(value) % 1000 * 1000000};
        nanosleep(&time, NULL);
    }
}

EXPORT CUresult cuInit(unsigned int flags)
{
    (void)flags;
    if (device_count < 0) {
        const char *path = knob("FAKE_CUDA_LOG");
        log_file = path == NULL ? NULL : fopen(path, "a");
        const char *list = knob("FAKE_CUDA_DEVICES");
        list = list == NULL ? "9.0" : list;
        device_count = 0;
        while (strcmp(list, "none") != 0 && device_count < MAX_DEVICES) {
            Capability *c = &capabilities[device_count];
            if (sscanf(list, "%d.%d", &c->major, &c->minor) != 2) {
                break;
            }
            contexts[device_count].device = device_count;
            device_count++;
            list = strchr(list, ',');
            if (list == NULL) {
                break;
            }
            list++;
        }
    }
    LOG("cuInit\n");
    return device_count == 0 ? NO_DEVICE : SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    const char *value = knob("FAKE_CUDA_VERSION");
    *version = value == NULL ? 12080 : atoi(value);
    return SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
    switch (code) {
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return SUCCESS;
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return SUCCESS;
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return SUCCESS;
    case 200: *name = "CUDA_ERROR_INVALID_IMAGE"; return SUCCESS;
    case 209: *name = "CUDA_ERROR_NO_BINARY_FOR_GPU"; return SUCCESS;
    case 218: *name = "CUDA_ERROR_INVALID_PTX"; return SUCCESS;
    case 222: *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; return SUCCESS;
    case 719: *name = "CUDA_ERROR_LAUNCH_FAILED"; return SUCCESS;
    default: *name = NULL; return INVALID_VALUE;
    }
}

// cuda.bindings finds everything through this one; names come without their version suffix.
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    char name[128];
    Dl_info info;
    (void)version, (void)flags;
    dladdr((void *)(uintptr_t)cuGetProcAddress_v2, &info);
    void *self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = dlsym(self, name);
    if (*function == NULL) {
        *function = dlsym(self, symbol);
    }
    dlclose(self);
    if (status != NULL) {
        *status = *function == NULL;
    }
    return *function == NULL ? NOT_FOUND : SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) { *count = device_count; return SUCCESS; }

EXPORT CUresult cuDeviceGet(int *device, int index)
{
    *device = index;
    return index >= 0 && index < device_count ? SUCCESS : INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "Fake GPU %d.%d", capabilities[device].major, capabilities[device].minor);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
    Capability c = capabilities[device];
    switch (attribute) {
    case 16: *value = 132; break;
    case 75: *value = c.major; break;
    case 76: *value = c.minor; break;
    case 97: *value = c.major == 9 || c.major == 10 ? 232448 : c.major == 8 && c.minor == 0 ? 166912 : 101376; break;
    case 115: *value = knob("FAKE_CUDA_NO_POOLS") == NULL; break;
    default: *value = 1; break;
    }
    return SUCCESS;
}

static size_t memory_bytes(void)
{
    const char *value = knob("FAKE_CUDA_MEMORY");
    return value == NULL ? (size_t)8 << 30 : (size_t)strtoull(value, NULL, 10);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = memory_bytes();
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &contexts[device];
    LOG("retain %d\n", device);
    return SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(void **context) { *context = depth == 0 ? NULL : stack[depth - 1]; return SUCCESS; }

EXPORT CUresult cuCtxSetCurrent(void *context)
{
    if (depth == 0) {
        depth = 1;
    }
    stack[depth - 1] = context;
    return SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(void *context) { stack[depth++] = context; return SUCCESS; }
EXPORT CUresult cuCtxPopCurrent_v2(void **context) { *context = stack[--depth]; return SUCCESS; }

static CUresult allocate(CUdeviceptr *address, size_t size, void *stream, const char *call)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    if (capture_of(stream) != NULL) {
        is_node(stream, "alloc");
    } else if (is_unsafe()) {
        return CAPTURE_UNSUPPORTED;
    }
    if (used_bytes + size > memory_bytes() || block_count == MAX_BLOCKS) {
        return OUT_OF_MEMORY;
    }
    void *memory = aligned_alloc(512, (size + 511) / 512 * 512);
    if (memory == NULL) {
        return OUT_OF_MEMORY;
    }
    memset(memory, 0xff, size);  // NaN in every float: what reads uninitialised memory shows it
    *address = (CUdeviceptr)(uintptr_t)memory;
    blocks[block_count++] = (Block){*address, size, stack[depth - 1]->device};
    used_bytes += size;
    LOG("%s %zu stream=%llu device=%d\n", call, size, (unsigned long long)(uintptr_t)stream, stack[depth - 1]->device);
    return SUCCESS;
}

static CUresult release(CUdeviceptr address, void *stream, const char *call)
{
    for (size_t i = 0; i < block_count; i++) {
        if (blocks[i].address == address) {
            used_bytes -= blocks[i].size;
            free((void *)(uintptr_t)address);
            blocks[i] = blocks[--block_count];
            LOG("%s stream=%llu\n", call, (unsigned long long)(uintptr_t)stream);
            return SUCCESS;
        }
    }
    LOG("%s of unknown memory\n", call);
    return INVALID_VALUE;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *a, size_t size) { return allocate(a, size, NULL, "cuMemAlloc"); }
EXPORT CUresult cuMemFree_v2(CUdeviceptr a) { return release(a, NULL, "cuMemFree"); }
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *a, size_t size, void *s) { return allocate(a, size, s, "cuMemAllocAsync"); }
EXPORT CUresult cuMemFreeAsync(CUdeviceptr a, void *s) { return release(a, s, "cuMemFreeAsync"); }

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    *total = memory_bytes();
    *available = *total - used_bytes;
    return SUCCESS;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream)
{
    if (refuse_capture(stream) != SUCCESS) {
        return CAPTURE_UNSUPPORTED;
    }
    memcpy((void *)(uintptr_t)to, from, size);
    return SUCCESS;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *stream)
{
    if (refuse_capture(stream) != SUCCESS) {
        return CAPTURE_UNSUPPORTED;
    }
    memcpy(to, (void *)(uintptr_t)from, size);
    return SUCCESS;
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream)
{
    if (is_node(stream, "copy")) {
        return SUCCESS;
    }
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return SUCCESS;
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, void *stream)
{
    if (is_node(stream, "fill")) {
        return SUCCESS;
    }
    memset((void *)(uintptr_t)to, byte, size);
    return SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address)
{
    for (size_t i = 0; i < block_count; i++) {
        if (attribute == 9 && address >= blocks[i].address && address < blocks[i].address + blocks[i].size) {
            *(int *)value = blocks[i].device;
            return SUCCESS;
        }
    }
    return INVALID_VALUE;
}

EXPORT CUresult cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
    *stream = (void *)(uintptr_t)(0x1000 + 16 * ++stamps);
    stream_devices[stamps % MAX_STREAMS] = depth == 0 ? 0 : stack[depth - 1]->device + 1;
    LOG("cuStreamCreate %llu flags=%u priority=%d device=%d\n", (unsigned long long)(uintptr_t)*stream, flags, priority,
        depth == 0 ? -1 : stack[depth - 1]->device);
    return SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(void *stream)
{
    LOG("cuStreamDestroy %llu\n", (unsigned long long)(uintptr_t)stream);
    if ((uintptr_t)stream >= 0x1000) {
        stream_devices[((uintptr_t)stream - 0x1000) / 16 % MAX_STREAMS] = -1;
    }
    return SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(void *stream)
{
    LOG("synchronize %llu\n", (unsigned long long)(uintptr_t)stream);
    take_time();
    return refuse_capture(stream);
}

EXPORT CUresult cuStreamQuery(void *stream) { return refuse_capture(stream); }

EXPORT CUresult cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
    (void)flags;
    // A captured stream waits for nothing outside its capture, and what waits for its events joins it.
    if (((Event *)event)->capture != capture_of(stream)) {
        Capture *capture = capture_of(stream) == NULL ? ((Event *)event)->capture : capture_of(stream);
        capture->is_invalid = 1;
        return CAPTURE_ISOLATION;
    }
    LOG("wait stream=%llu event=%llu\n", (unsigned long long)(uintptr_t)stream, ((Event *)event)->stamp);
    return SUCCESS;
}

// A stream whose handle is odd is "being captured", so tests need no real capture.
EXPORT CUresult cuStreamIsCapturing(void *stream, int *status)
{
    *status = (uintptr_t)stream % 2 == 1 || capture_of(stream) != NULL;
    return SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                          const void **dependencies, size_t *count)
{
    const Capture *capture = capture_of(stream);
    (void)dependencies;
    (void)count;
    if (graph != NULL) {
        *graph = capture == NULL ? NULL : capture->graph;
    }
    *id = capture == NULL ? (uintptr_t)stream : capture->id;
    return cuStreamIsCapturing(stream, status);
}

EXPORT CUresult cuStreamBeginCapture_v2(void *stream, int mode)
{
    Capture *free_one = NULL;
    for (int i = 0; i < MAX_CAPTURES; i++) {
        if (captures[i].stream == NULL) {
            free_one = &captures[i];
        }
    }
    if (stream == NULL || capture_of(stream) != NULL || free_one == NULL) {
        return CAPTURE_UNSUPPORTED;
    }
    static unsigned long long last_id = 1ull << 40;
    *free_one = (Capture){.stream = stream, .thread = &capture_mode, .id = ++last_id, .graph = calloc(1, sizeof(Graph))};
    capture_count++;
    LOG("begin capture stream=%llu mode=%d\n", (unsigned long long)(uintptr_t)stream, mode);
    return SUCCESS;
}

static void destroy_graph(Graph *graph)
{
    for (int i = 0; i < 8; i++) {
        UserObject *held = graph->held[i];
        if (held != NULL && --held->references == 0) {
            held->destroy(held->object);
            free(held);
        }
    }
    free(graph);
}

EXPORT CUresult cuUserObjectCreate(void **made, void *object, void (*destroy)(void *), unsigned int references,
                                   unsigned int flags)
{
    UserObject *user = calloc(1, sizeof *user);
    *user = (UserObject){.destroy = destroy, .object = object, .references = (int)references};
    *made = user;
    return flags == 1 ? SUCCESS : INVALID_VALUE;  // what the real one insists on
}

// With flag 1 the caller's reference becomes the graph's.
EXPORT CUresult cuGraphRetainUserObject(void *graph, void *object, unsigned int count, unsigned int flags)
{
    for (int i = 0; i < 8 && count == 1 && flags == 1; i++) {
        if (((Graph *)graph)->held[i] == NULL) {
            ((Graph *)graph)->held[i] = object;
            return SUCCESS;
        }
    }
    return INVALID_VALUE;
}

EXPORT CUresult cuStreamEndCapture(void *stream, void **graph)
{
    Capture *capture = capture_of(stream);
    *graph = NULL;
    if (capture == NULL) {
        return INVALID_VALUE;
    }
    if (capture->thread != &capture_mode) {
        return CAPTURE_WRONG_THREAD;
    }
    capture_count--;
    Capture ended = *capture;
    *capture = (Capture){0};
    LOG("end capture nodes=%zu\n", ended.nodes);
    if (ended.is_invalid) {
        destroy_graph(ended.graph);
        return CAPTURE_INVALIDATED;
    }
    ended.graph->nodes = ended.nodes;
    *graph = ended.graph;
    return SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(void *graph, void **nodes, size_t *count)
{
    (void)nodes;
    *count = ((Graph *)graph)->nodes;
    return SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags)
{
    (void)flags;
    Graph *made = memcpy(calloc(1, sizeof *made), graph, sizeof *made);
    for (int i = 0; i < 8; i++) {
        if (made->held[i] != NULL) {
            made->held[i]->references++;
        }
    }
    *instance = made;
    return SUCCESS;
}

EXPORT CUresult cuGraphLaunch(void *instance, void *stream)
{
    LOG("graph nodes=%zu stream=%llu\n", ((Graph *)instance)->nodes, (unsigned long long)(uintptr_t)stream);
    return SUCCESS;
}

EXPORT CUresult cuGraphDestroy(void *graph) { LOG("cuGraphDestroy\n"); destroy_graph(graph); return SUCCESS; }
EXPORT CUresult cuGraphExecDestroy(void *instance) { LOG("cuGraphExecDestroy\n"); destroy_graph(instance); return SUCCESS; }

EXPORT CUresult cuEventCreate(void **event, unsigned int flags)
{
    (void)flags;
    *event = calloc(1, sizeof(Event));
    return SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(void *event)
{
    LOG("cuEventDestroy\n");
    free(event);
    return SUCCESS;
}

EXPORT CUresult cuEventRecord(void *event, void *stream)
{
    ((Event *)event)->stamp = ++stamps;
    ((Event *)event)->capture = capture_of(stream);
    LOG("record stream=%llu event=%llu\n", (unsigned long long)(uintptr_t)stream, stamps);
    return SUCCESS;
}

EXPORT CUresult cuEventQuery(void *event)
{
    return is_unsafe() ? CAPTURE_UNSUPPORTED : ((Event *)event)->stamp == 0 ? 600 : SUCCESS;
}

EXPORT CUresult cuEventSynchronize(void *event)
{
    (void)event;
    take_time();
    return is_unsafe() ? CAPTURE_UNSUPPORTED : SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, void *first, void *second)
{
    *milliseconds = (float)(((Event *)second)->stamp - ((Event *)first)->stamp);
    return SUCCESS;
}

// ---- code: anything that does not start as a cubin (ELF) or a PTX text is refused with 200

static CUresult check_code(const void *code)
{
    const char *text = code;
    if (memcmp(text, "\x7f"
                     "ELF", 4) != 0 && strstr(text, ".version") == NULL) {
        return 200;
    }
    const char *list = knob("FAKE_CUDA_FAIL_LOAD");
    while (list != NULL) {
        char needle[64];
        int failure;
        if (sscanf(list, "%63[^=]=%d", needle, &failure) == 2 && strstr(text + 4, needle) != NULL) {
            return failure;
        }
        list = strchr(list, ',');
        list = list == NULL ? NULL : list + 1;
    }
    return SUCCESS;
}

static CUresult load(void **out, const void *code, const char *call)
{
    CUresult result = is_unsafe() ? CAPTURE_UNSUPPORTED : check_code(code);
    take_time();
    const char *text = (const char *)code;
    int length = (int)strcspn(text + 4, "\n");
    LOG("%s %.*s -> %d\n", call, length > 40 ? 40 : length, text + 4, result);
    if (result == SUCCESS) {
        *out = calloc(1, sizeof(Library));
    }
    return result;
}

static CUresult get_function(void **out, const char *name)
{
    if (strstr(name, "missing") != NULL) {
        return NOT_FOUND;
    }
    Function *function = calloc(1, sizeof *function);
    snprintf(function->name, sizeof function->name, "%s", name);
    *out = function;
    return SUCCESS;
}

EXPORT CUresult cuModuleLoadDataEx(void **module, const void *code, unsigned int n, int *options, void **values)
{
    (void)n, (void)options, (void)values;
    return load(module, code, "cuModuleLoadDataEx");
}

EXPORT CUresult cuModuleUnload(void *module) { LOG("cuModuleUnload\n"); free(module); return SUCCESS; }

EXPORT CUresult cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    return get_function(function, name);
}

#ifndef WITHOUT_LIBRARY
EXPORT CUresult cuLibraryLoadData(void **library, const void *code, int *o, void **v, unsigned int n, int *lo, void **lv,
                                  unsigned int ln)
{
    (void)o, (void)v, (void)n, (void)lo, (void)lv, (void)ln;
    return load(library, code, "cuLibraryLoadData");
}

EXPORT CUresult cuLibraryUnload(void *library) { LOG("cuLibraryUnload\n"); free(library); return SUCCESS; }

EXPORT CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library;
    return get_function(kernel, name);
}

EXPORT CUresult cuKernelGetFunction(void **function, void *kernel) { *function = kernel; return SUCCESS; }
#endif

EXPORT CUresult cuFuncSetAttribute(void *function, int attribute, int value)
{
    LOG("cuFuncSetAttribute %s %d=%d\n", ((Function *)function)->name, attribute, value);
    return SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_per_processor, void *f, int threads, size_t shared)
{
    (void)f, (void)threads, (void)shared;
    *blocks_per_processor = 2;
    return SUCCESS;
}

typedef struct { int id; char pad[4]; union { char pad[64]; unsigned int cluster[3]; } value; } Attribute;
typedef struct {
    unsigned int grid[3], block[3], shared;
    void *stream;
    Attribute *attributes;
    unsigned int attribute_count;
} Config;

static CUresult launch(const Config *config, void *function, void **parameters)
{
    uintptr_t handle = (uintptr_t)config->stream;
    int device = handle < 0x1000 ? 0 : stream_devices[(handle - 0x1000) / 16 % MAX_STREAMS];
    if (device != 0 && (device < 0 || depth == 0 || stack[depth - 1]->device + 1 != device)) {
        return INVALID_HANDLE;
    }
    (void)is_node(config->stream, "launch");
    if (log_file == NULL) {
        return SUCCESS;
    }
    flockfile(log_file);  // a line in parts, between which a thread that waits without Python's lock may write
    LOG("launch %s grid=%u,%u,%u block=%u shared=%u stream=%llu device=%d", ((Function *)function)->name, config->grid[0],
        config->grid[1], config->grid[2], config->block[0], config->shared,
        (unsigned long long)(uintptr_t)config->stream, depth == 0 ? -1 : stack[depth - 1]->device);
    for (unsigned int i = 0; i < config->attribute_count; i++) {
        const Attribute *attribute = &config->attributes[i];
        LOG(" attribute%d=%u", attribute->id, attribute->value.cluster[0]);
        if (attribute->id == 4) {  // the extents of a cluster
            LOG(",%u,%u", attribute->value.cluster[1], attribute->value.cluster[2]);
        }
    }
    // After the parameters the launcher gives NULL, then offset and size of each among the bytes that a kernel sees.
    unsigned char packed[4096] = {0};
    int count = 0, end = 0, misplaced = 0;
    while (parameters[count] != NULL) {
        count++;
    }
    const struct { int offset, size; } *spans = parameters[count + 1];
    for (int i = 0; i < count; i++) {
        memcpy(packed + spans[i].offset, parameters[i], (size_t)spans[i].size);
        end = spans[i].offset + spans[i].size > end ? spans[i].offset + spans[i].size : end;
        misplaced |= spans[i].size == MAP_BYTES ? (int)((uintptr_t)parameters[i] % 64) : 0;
    }
    // A tensor map must start at a multiple of 64 bytes.
    LOG(" at=%d packed=", misplaced);
    for (int i = 0; i < end; i++) {
        LOG("%02x", packed[i]);
    }
    LOG("\n");
    funlockfile(log_file);
    return SUCCESS;
}

EXPORT CUresult cuLaunchKernelEx(const Config *config, void *function, void **parameters, void **extra)
{
    (void)extra;
    return launch(config, function, parameters);
}

EXPORT CUresult cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int block_x,
                               unsigned int block_y, unsigned int block_z, unsigned int shared, void *stream,
                               void **parameters, void **extra)
{
    (void)extra;
    Config config = {.grid = {x, y, z}, .block = {block_x, block_y, block_z}, .shared = shared, .stream = stream};
    return launch(&config, function, parameters);
}

EXPORT CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                                       const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                       int swizzle, int promotion, int fill)
{
    (void)steps, (void)interleave, (void)promotion, (void)fill;
    if ((uintptr_t)address % 16 != 0) {
        return INVALID_VALUE;
    }
    LOG("encode type=%d rank=%u swizzle=%d sizes=", type, rank, swizzle);
    for (uint32_t i = 0; i < rank; i++) {
        LOG("%llu/%u/%llu,", (unsigned long long)sizes[i], box[i], i + 1 < rank ? (unsigned long long)strides[i] : 0ULL);
    }
    LOG("\n");
    memset(map, 0x5a, 128);
    memcpy(map, &address, sizeof address);
    return SUCCESS;
}
