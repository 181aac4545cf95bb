// What the files of this extension share. State is process wide and guarded by the GIL: every function
// here is called with the GIL held unless it says otherwise.
#ifndef TILEWRIGHT_LAUNCHER_H
#define TILEWRIGHT_LAUNCHER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "driver.h"

// The same word as in tilewright/runtime/launcher.py, which a test derives from what both sides know of each other.
#define TW_INTERFACE "61f6be82ee8cc2ac"

enum {
    MAX_PARAMETERS = 128,
    MAX_DEVICES = 64,
    MAX_FOREIGN_STREAMS = 16,
    MAX_STREAM_SOURCES = 8,
    MAX_PACKED_BYTES = 4096,
    FAST_DIVISOR = 16,
};

// Positions in tilewright.abi.dtypes.ALL; `code_names` in arguments.c lists them.
enum {
    CODE_I1, CODE_I8, CODE_I16, CODE_I32, CODE_I64, CODE_U8, CODE_U16, CODE_U32, CODE_U64,
    CODE_F16, CODE_BF16, CODE_F32, CODE_F64, CODE_F8E4M3, CODE_F8E5M2, CODE_COUNT,
};
extern const char *const tw_code_names[CODE_COUNT];
extern const unsigned char tw_code_bytes[CODE_COUNT];

// ---- driver.c
typedef struct {
    CUdevice handle;
    CUcontext context;
    CUevent order_event;  // orders two streams; reusable at once, since a wait takes the state at its call
    CUstream side_stream;  // where memory is allocated while a graph is recorded; NULL until then
    int pools_supported;
    size_t cache_limit;
} DeviceState;

// Of what a launch is unlikely to need: kept apart from what it does, which then fits in less of the processor's cache.
#define TW_COLD __attribute__((cold, noinline))

extern DriverTable cu;
extern int tw_driver_is_open, tw_was_forked;
extern DeviceState tw_devices[MAX_DEVICES];
extern PyObject *tw_driver_error, *tw_no_driver_error, *tw_out_of_memory_error, *tw_argument_error, *tw_launch_error;

int tw_import_errors(void);
int tw_open_driver(void);                              // idempotent; -1 with NoDriverError set
TW_COLD DeviceState *tw_open_device(int index);
TW_COLD int tw_switch_context(const DeviceState *device, int *pushed);
void tw_leave(int pushed);
TW_COLD int tw_raise(CUresult result, const char *call);

static inline int tw_driver_is_usable(void)  // open, and not inherited through a fork
{
    return tw_driver_is_open && !tw_was_forked;
}

static inline DeviceState *tw_device(int index)  // opens the driver and retains the primary context
{
    int is_known = tw_driver_is_usable() && (unsigned int)index < MAX_DEVICES && tw_devices[index].context != NULL;
    return is_known ? &tw_devices[index] : tw_open_device(index);
}

static inline int tw_check(CUresult result, const char *call)  // 0, or -1 with DriverError set
{
    return result == CUDA_SUCCESS ? 0 : tw_raise(result, call);
}

static inline int tw_enter(const DeviceState *device, int *pushed)  // makes the device's primary context current
{
    CUcontext current = NULL;
    *pushed = 0;
    int is_current = cu.CtxGetCurrent(&current) == CUDA_SUCCESS && current == device->context;
    return is_current ? 0 : tw_switch_context(device, pushed);
}

int tw_is_capturing(CUstream stream);             // never an error: an unanswerable query counts as no
int tw_order(DeviceState *device, CUstream first, CUstream then);
PyObject *tw_driver_version(PyObject *module, PyObject *ignored);
PyObject *tw_device_count(PyObject *module, PyObject *ignored);
PyObject *tw_device_attribute(PyObject *module, PyObject *arguments);
PyObject *tw_device_total_memory(PyObject *module, PyObject *arguments);
PyObject *tw_after_fork(PyObject *module, PyObject *ignored);
PyObject *tw_capture_status(PyObject *module, PyObject *arguments);

// ---- stream.c
PyObject *tw_stream_create(PyObject *module, PyObject *arguments);
PyObject *tw_stream_destroy(PyObject *module, PyObject *arguments);
PyObject *tw_stream_is_done(PyObject *module, PyObject *arguments);
PyObject *tw_stream_order(PyObject *module, PyObject *arguments);
PyObject *tw_stream_handle(PyObject *module, PyObject *object);
PyObject *tw_stream_synchronize(PyObject *module, PyObject *arguments);

#define UNKNOWN_CAPTURE UINT64_MAX

// ---- graph.c: `recording` is what this thread does, `capturing` what any program does with a stream
int tw_graph_ready(PyObject *module);
extern int tw_recordings;                                                 // how many threads record
int tw_recorded_stream(int device, CUstream *stream, PyObject **owner);  // whether this thread records on the device
int tw_is_recorded(CUstream stream);
int tw_record(PyObject *value, int is_written);  // while recording: the graph keeps an argument
int tw_refuse_in_capture(CUstream stream, const char *what);  // -1 with LaunchError in a capture of it or by this thread
CUresult tw_allocate_beside(DeviceState *device, CUdeviceptr *address, size_t size, CUstream stream);
CUresult tw_free_beside(const DeviceState *device, CUdeviceptr address, CUstream stream);

// ---- capture.c: graphs of other programs, by the number of their capture
uint64_t tw_foreign_capture(CUstream stream);  // its number; 0 for none and for this thread's own
uint64_t tw_next_gone(void);                   // one whose graph is gone and whose memory is kept still; 0 for none
int tw_is_capture_gone(uint64_t capture);      // whether `tw_next_gone` gave it
void tw_count_captured(uint64_t capture);      // a block more is handed out in it
void tw_discount_captured(uint64_t capture);   // a block of it is everyone's again

// ---- buffer.c
// The library that tells on which stream the work on its arrays goes, at every launch anew: by DLPack's C exchange API,
// or, without a table, torch.
typedef struct {
    const struct ExchangeApi *api;
    int is_torch;
} StreamSource;

// What a launch reads comes first: it is in one line of the processor's cache.
typedef struct {
    uint64_t version;
    CUstream stream;
    int device;
    int freed, is_read_only;
    int has_source;
    StreamSource source;  // of borrowed memory, then in place of `stream`
    Py_ssize_t references;
    CUdeviceptr address;
    size_t capacity;
    uint64_t capture;  // in which the memory was handed out, or 0
    int is_borrowed;
    PyObject *owner;  // of the stream, or of borrowed memory
} Storage;

typedef struct {
    PyObject_HEAD
    Storage *storage;
    CUdeviceptr address;
    size_t size_bytes;
    unsigned char code;
    PyObject *shape, *strides;  // tuples; strides count elements
    PyObject *geometry;         // both and what else plans depend on, made when it is asked for
} Buffer;

// Memory that `owner` keeps alive, to be seen as a buffer; `source` is NULL where the stream is known.
typedef struct {
    PyTypeObject *type;
    CUdeviceptr address;
    size_t size_bytes;
    int code, device, is_read_only;
    CUstream stream;
    const StreamSource *source;
    PyObject *owner;
} Borrowed;

extern PyTypeObject *tw_buffer_type;
Buffer *tw_new_borrowed(const Borrowed *borrowed);
int tw_check_buffer_type(PyObject *type);
int tw_stream_of(const Storage *storage, CUstream *stream);  // asks the source, where there is one
PyObject *tw_geometry(Buffer *buffer);                      // a new reference
PyObject *tw_set_geometry_type(PyObject *module, PyObject *type);
PyObject *tw_allocate(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *tw_launch_stream(PyObject *module, PyObject *arguments);
int tw_buffer_ready(PyObject *module);
int tw_pool_allocate(DeviceState *device, int index, size_t size, CUstream stream, uint64_t capture,
                     CUdeviceptr *address, size_t *capacity);
void tw_pool_release(int index, CUdeviceptr address, size_t capacity, CUstream stream, uint64_t capture);
int tw_pool_adopt(int index, CUstream stream);  // -1 with MemoryError; a stream is about to be destroyed
PyObject *tw_pool_statistics(PyObject *module, PyObject *arguments);
PyObject *tw_pool_trim(PyObject *module, PyObject *arguments);
PyObject *tw_pool_set_limit(PyObject *module, PyObject *arguments);
PyObject *tw_borrow(PyObject *module, PyObject *arguments);
PyObject *tw_copy_from_host(PyObject *module, PyObject *arguments);
PyObject *tw_copy_to_host(PyObject *module, PyObject *arguments);
PyObject *tw_copy(PyObject *module, PyObject *arguments);
PyObject *tw_fill(PyObject *module, PyObject *arguments);

// ---- event.c
int tw_event_ready(PyObject *module);

// ---- arguments.c
enum { SLOT_POINTER = 1, SLOT_SCALAR = 2, SLOT_CONSTEXPR = 3 };

typedef struct {
    unsigned char kind, code;
    unsigned char read_only;
    unsigned char is_exact;  // `integer` holds the value
    uint64_t bits;           // what is packed: an address or the scalar's bytes
    int64_t integer;
    PyObject *value;         // borrowed from the caller's arguments
    Buffer *buffer;          // borrowed, when the argument is ours
} Slot;

typedef struct {
    int count;
    int device;       // -1 until a device argument is seen
    int device_from;  // slot that fixed it
    int host_from;    // slot of the first host array, or -1
    int has_stream;
    int has_dlpack;  // an argument whose memory is asked for when the stream is known
    int foreign_count, source_count, held_count;
    CUstream stream;
    PyObject *names;   // borrowed tuple
    PyObject *kernel;  // borrowed name
    CUstream foreign[MAX_FOREIGN_STREAMS];
    StreamSource sources[MAX_STREAM_SOURCES];  // the launch goes to the first's stream and waits for the others'
    Slot slots[MAX_PARAMETERS];
    PyObject *held[MAX_PARAMETERS];  // owned: DLPack capsules, plain constexprs; dropped after the launch
} Call;

int tw_arguments_ready(void);
int tw_classify(Call *call, int index, PyObject *value);
int tw_classify_constexpr(Call *call, int index, PyObject *value);
int tw_finish_arguments(Call *call);  // the exporters' current streams, DLPack borrowing
int tw_current_stream(const StreamSource *source, int device, CUstream *stream);
int tw_exchange_of(PyObject *value, const struct ExchangeApi **api, StreamSource *source);  // -1 with an error
int tw_parse_stream(PyObject *object, CUstream *stream);
PyObject *tw_set_classifier(PyObject *module, PyObject *arguments);
PyObject *tw_scalar_bits(PyObject *module, PyObject *arguments);

PyObject *tw_device_of(PyObject *module, PyObject *arguments);

// ---- operands.c
int tw_operands_ready(void);
PyObject *tw_borrow_array(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *tw_operands(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names);
PyObject *tw_must_be_apart(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

// ---- dlpack.c
PyObject *tw_dlpack_read(PyObject *module, PyObject *capsule);
PyObject *tw_dlpack_export(PyObject *module, PyObject *arguments);

// ---- plan.c
typedef struct Plan Plan;
extern PyTypeObject *tw_plan_type;
int tw_plan_ready(PyObject *module);
int tw_plan_launch(Plan *plan, Call *call, const uint64_t grid[3]);
int tw_plan_device(const Plan *plan);

// ---- code.c
PyObject *tw_load(PyObject *module, PyObject *arguments);
PyObject *tw_unload(PyObject *module, PyObject *arguments);
PyObject *tw_resident_programs(PyObject *module, PyObject *arguments);

// ---- tensor_map.c
typedef struct {
    CUdeviceptr address;
    uint64_t sizes[5];    // innermost first, as the driver wants them
    uint64_t strides[5];  // bytes, innermost left out: strides[0] belongs to dimension 1
    uint32_t box[5];
    uint32_t rank, code, swizzle_bytes, device, rounds_to_tf32;
} TensorMapKey;

int tw_tensor_map(const TensorMapKey *key, CUtensorMap *map);
PyObject *tw_tensor_map_statistics(PyObject *module, PyObject *ignored);

// ---- grid.c
int tw_parse_grid(PyObject *kernel, PyObject *object, uint64_t grid[3]);  // -1 with LaunchError naming the kernel
int tw_read_plain_grid(PyObject *grid, uint64_t extents[3]);              // never an error

// ---- dispatch.c
int tw_dispatch_ready(PyObject *module);

#endif
