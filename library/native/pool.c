// Stream-ordered device memory with a size-class free list.
//
// A freed block goes to the list of its (device, stream, size class) and is handed out again to the same
// stream without any driver call: work on one stream is ordered, so the new owner's work comes after the
// old owner's. Blocks above the device's cache limit go back to the driver with cuMemFreeAsync.
//
// A graph that another program captures may run at any time after. What is handed out in its capture is handed out again
// within that alone, where one piece of work comes after the other, and counts as live until the graph is gone
// (capture.c).
#include "launcher.h"

enum { BIN_COUNT = 512, SMALLEST = 512 };

// In place of a capture's number: blocks that no work is left for, so that any stream may have them, captured or not.
#define IDLE (UINT64_MAX - 1)

typedef struct Block {
    struct Block *next;
    CUdeviceptr address;
} Block;

typedef struct Bin {
    struct Bin *next;
    int device;
    CUstream stream;
    uint64_t capture;
    size_t capacity;
    Block *blocks;
} Bin;

typedef struct {
    size_t live_bytes, peak_bytes, cached_bytes;
    uint64_t allocations, reuses, driver_allocations, driver_frees;
} Statistics;

static Bin *bins[BIN_COUNT];
static Statistics statistics[MAX_DEVICES];

// Four classes per power of two: at most a quarter is wasted, and a quarter of the classes would do for the
// sizes that one model really uses.
static size_t size_class(size_t size)
{
    if (size <= SMALLEST) {
        return SMALLEST;
    }
    size_t step = SMALLEST;
    while (step * 8 <= size && step < ((size_t)32 << 20)) {
        step *= 2;
    }
    return (size + step - 1) / step * step;
}

static Bin *find_bin(int device, CUstream stream, uint64_t capture, size_t capacity, int create)
{
    size_t hash = ((size_t)stream >> 4) * 31 + capacity / SMALLEST * 17 + (size_t)device;
    Bin **slot = &bins[hash % BIN_COUNT];
    for (Bin *bin = *slot; bin != NULL; bin = bin->next) {
        if (bin->device == device && bin->stream == stream && bin->capture == capture &&
            bin->capacity == capacity) {
            return bin;
        }
    }
    if (!create) {
        return NULL;
    }
    Bin *bin = PyMem_Calloc(1, sizeof *bin);
    if (bin != NULL) {
        *bin = (Bin){.next = *slot, .device = device, .stream = stream, .capture = capture, .capacity = capacity};
        *slot = bin;
    }
    return bin;
}

// The device's context is current.
static CUresult driver_free(const DeviceState *device, int index, CUdeviceptr address, CUstream stream)
{
    statistics[index].driver_frees++;
    return tw_free_beside(device, address, stream);
}

static CUresult driver_allocate(DeviceState *device, int index, CUdeviceptr *address, size_t size,
                                CUstream stream)
{
    CUresult result = tw_allocate_beside(device, address, size, stream);
    if (result == CUDA_SUCCESS) {
        statistics[index].driver_allocations++;
    }
    return result;
}

static size_t trim(const DeviceState *device, int index, size_t keep_bytes)
{
    size_t released = 0;
    for (int i = 0; i < BIN_COUNT; i++) {
        for (Bin *bin = bins[i]; bin != NULL; bin = bin->next) {
            // A block of a stream that is being captured would be freed by a node of the graph.
            if (bin->device != index || bin->blocks == NULL || (bin->capture != 0 && bin->capture != IDLE) ||
                tw_is_capturing(bin->stream)) {
                continue;
            }
            while (bin->blocks != NULL && statistics[index].cached_bytes > keep_bytes) {
                Block *block = bin->blocks;
                bin->blocks = block->next;
                (void)driver_free(device, index, block->address, bin->stream);
                PyMem_Free(block);
                statistics[index].cached_bytes -= bin->capacity;
                released += bin->capacity;
            }
        }
    }
    return released;
}

static PyObject *statistics_of(int index)
{
    const Statistics *s = &statistics[index];
    return Py_BuildValue("{s:n,s:n,s:n,s:K,s:K,s:K,s:K}", "live_bytes", (Py_ssize_t)s->live_bytes, "peak_bytes",
                         (Py_ssize_t)s->peak_bytes, "cached_bytes", (Py_ssize_t)s->cached_bytes, "allocations",
                         (unsigned long long)s->allocations, "reuses", (unsigned long long)s->reuses,
                         "driver_allocations", (unsigned long long)s->driver_allocations, "driver_frees",
                         (unsigned long long)s->driver_frees);
}

// The device's context is current.
static int raise_out_of_memory(int index, size_t size, const char *call)
{
    const Statistics *s = &statistics[index];
    size_t free_bytes = 0, total_bytes = 0;
    (void)cu.MemGetInfo(&free_bytes, &total_bytes);
    PyObject *text = PyUnicode_FromFormat(
        "out of memory on device %d: %zu bytes were asked for, %zu of %zu are free; Tilewright holds %zu bytes in live "
        "buffers (peak %zu) and %zu bytes in its free list, which was emptied first; free buffers or use smaller ones",
        index, size, free_bytes, total_bytes, s->live_bytes, s->peak_bytes, s->cached_bytes);
    PyObject *positional = text == NULL ? NULL : PyTuple_Pack(1, text);
    PyObject *keywords =
        positional == NULL ? NULL
                           : Py_BuildValue("{s:i,s:s,s:i,s:n,s:N}", "code", CUDA_ERROR_OUT_OF_MEMORY, "call", call,
                                           "device", index, "requested_bytes", (Py_ssize_t)size, "statistics",
                                           statistics_of(index));
    PyObject *error = keywords == NULL ? NULL : PyObject_Call(tw_out_of_memory_error, positional, keywords);
    if (error != NULL) {
        PyErr_SetObject(tw_out_of_memory_error, error);
    }
    Py_XDECREF(error);
    Py_XDECREF(keywords);
    Py_XDECREF(positional);
    Py_XDECREF(text);
    return -1;
}

static int allocate_anew(DeviceState *device, int index, size_t size, size_t capacity, CUstream stream,
                         CUdeviceptr *address)
{
    int pushed, status;
    if (tw_enter(device, &pushed) < 0) {
        return -1;
    }
    const char *call = device->pools_supported ? "cuMemAllocAsync" : "cuMemAlloc";
    CUresult result = driver_allocate(device, index, address, capacity, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && statistics[index].cached_bytes > 0) {
        trim(device, index, 0);
        if (!tw_is_capturing(stream)) {
            Py_BEGIN_ALLOW_THREADS
            (void)cu.StreamSynchronize(stream);  // what was freed on the stream becomes usable now
            Py_END_ALLOW_THREADS
        }
        result = driver_allocate(device, index, address, capacity, stream);
    }
    status = result == CUDA_ERROR_OUT_OF_MEMORY ? raise_out_of_memory(index, size, call) : tw_check(result, call);
    tw_leave(pushed);
    return status;
}

// The first block of a list, taken from it; 0 where there is none.
static CUdeviceptr take(Bin *bin)
{
    Block *block = bin == NULL ? NULL : bin->blocks;
    if (block == NULL) {
        return 0;
    }
    CUdeviceptr address = block->address;
    bin->blocks = block->next;
    PyMem_Free(block);
    return address;
}

// Whether there was memory to put a block on its list.
static int put(int index, CUdeviceptr address, size_t capacity, CUstream stream, uint64_t capture)
{
    Bin *bin = find_bin(index, stream, capture, capacity, 1);
    Block *block = bin == NULL ? NULL : PyMem_Malloc(sizeof *block);
    if (block == NULL) {
        return 0;
    }
    *block = (Block){.next = bin->blocks, .address = address};
    bin->blocks = block;
    return 1;
}

static void release(int index, CUdeviceptr address, size_t capacity, CUstream stream, uint64_t list)
{
    Statistics *s = &statistics[index];
    s->live_bytes -= capacity;
    DeviceState *device = tw_device(index);
    if (device == NULL) {
        PyErr_Clear();
        return;
    }
    if (s->cached_bytes + capacity <= device->cache_limit || tw_is_capturing(stream)) {
        if (put(index, address, capacity, stream, list)) {
            s->cached_bytes += capacity;
            return;
        }
    }
    int pushed;
    if (tw_enter(device, &pushed) < 0) {
        PyErr_Clear();
        return;
    }
    (void)driver_free(device, index, address, stream);
    tw_leave(pushed);
}

// Make what was kept for graphs that are gone everyone's again. When the driver tells of a graph's end, its last run is
// over.
static void collect(void)
{
    uint64_t capture;
    while ((capture = tw_next_gone()) != 0) {
        for (int i = 0; i < BIN_COUNT; i++) {
            for (Bin **link = &bins[i]; *link != NULL;) {
                Bin *bin = *link;
                if (bin->capture != capture) {
                    link = &bin->next;
                    continue;
                }
                *link = bin->next;
                for (CUdeviceptr address; (address = take(bin)) != 0;) {
                    release(bin->device, address, bin->capacity, NULL, IDLE);
                    tw_discount_captured(capture);
                }
                PyMem_Free(bin);
                link = &bins[i];  // one of idle blocks may have come into this chain
            }
        }
    }
}

int tw_pool_allocate(DeviceState *device, int index, size_t size, CUstream stream, uint64_t capture,
                     CUdeviceptr *address, size_t *capacity)
{
    Statistics *s = &statistics[index];
    *capacity = size_class(size);
    collect();
    if (capture != 0 && capture != UNKNOWN_CAPTURE) {
        *address = take(find_bin(index, stream, capture, *capacity, 0));
        if (*address != 0) {
            s->allocations++;
            s->reuses++;
            return 0;
        }
    }
    *address = take(find_bin(index, stream, 0, *capacity, 0));
    if (*address == 0) {
        *address = take(find_bin(index, NULL, IDLE, *capacity, 0));
    }
    if (*address == 0 && tw_is_recorded(stream)) {
        *address = take(find_bin(index, NULL, 0, *capacity, 0));  // the graph comes after the legacy stream: see graph_end
    }
    if (*address != 0) {
        s->cached_bytes -= *capacity;
        s->reuses++;
    } else if (allocate_anew(device, index, size, *capacity, stream, address) < 0) {
        return -1;
    }
    s->allocations++;
    s->live_bytes += *capacity;
    if (capture != 0) {
        tw_count_captured(capture);
    }
    if (s->live_bytes > s->peak_bytes) {
        s->peak_bytes = s->live_bytes;
    }
    return 0;
}

// Called from deallocators: it keeps the error indicator and gives up silently where nothing can be done,
// that is in a forked child and after the driver's own shutdown.
void tw_pool_release(int index, CUdeviceptr address, size_t capacity, CUstream stream, uint64_t capture)
{
    if (!tw_driver_is_usable()) {
        return;
    }
    if (capture != 0) {
        collect();
        if (!tw_is_capture_gone(capture)) {
            (void)put(index, address, capacity, stream, capture);  // without memory for that it is not handed out again
            return;
        }
        tw_discount_captured(capture);
    }
    release(index, address, capacity, stream, 0);
}

PyObject *tw_pool_statistics(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index;
    if (!PyArg_ParseTuple(arguments, "i", &index)) {
        return NULL;
    }
    if (index < 0 || index >= MAX_DEVICES) {
        return PyErr_Format(tw_argument_error, "device %d does not exist", index);
    }
    if (tw_driver_is_usable()) {
        collect();
    }
    return statistics_of(index);
}

PyObject *tw_pool_trim(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, pushed;
    Py_ssize_t keep_bytes = 0;
    if (!PyArg_ParseTuple(arguments, "i|n", &index, &keep_bytes)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    collect();
    size_t released = trim(device, index, keep_bytes < 0 ? 0 : (size_t)keep_bytes);
    tw_leave(pushed);
    return PyLong_FromSize_t(released);
}

PyObject *tw_pool_set_limit(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(arguments, "in", &index, &limit)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL) {
        return NULL;
    }
    device->cache_limit = limit < 0 ? 0 : (size_t)limit;
    Py_RETURN_NONE;
}

// A stream is about to be destroyed, and the legacy stream comes after its work: its cached blocks move to that
// one's lists.
int tw_pool_adopt(int index, CUstream stream)
{
    for (int i = 0; i < BIN_COUNT && stream != NULL; i++) {
        Bin **link = &bins[i];
        while (*link != NULL) {
            Bin *bin = *link;
            if (bin->device != index || bin->stream != stream || bin->capture != 0) {
                link = &bin->next;
                continue;
            }
            // Taken out before the legacy bin is looked up, which may lie in the same chain.
            *link = bin->next;
            Bin *legacy = bin->blocks == NULL ? NULL : find_bin(index, NULL, 0, bin->capacity, 1);
            if (bin->blocks != NULL && legacy == NULL) {
                bin->next = *link;
                *link = bin;
                PyErr_NoMemory();
                return -1;
            }
            while (bin->blocks != NULL) {
                Block *block = bin->blocks;
                bin->blocks = block->next;
                block->next = legacy->blocks;
                legacy->blocks = block;
            }
            PyMem_Free(bin);
            link = &bins[i];
        }
    }
    return 0;
}
