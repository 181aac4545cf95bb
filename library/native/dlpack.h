// DLPack's ABI: version 0 of its capsules, the only form that every exporter can still give and every importer
// takes, and the C exchange API of version 1 (since 1.2), by which a launch reads arrays without a Python call.
#ifndef TILEWRIGHT_DLPACK_H
#define TILEWRIGHT_DLPACK_H

#include <Python.h>
#include <stdint.h>

typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *);
} DLManagedTensor;

typedef struct ExchangeHeader {
    uint32_t major, minor;
    struct ExchangeHeader *previous;  // the table of an older major version, or NULL
} ExchangeHeader;

// What a library hangs on the type of its arrays, as a capsule. The table lives as long as the process.
typedef struct ExchangeApi {
    ExchangeHeader header;
    void *allocate, *export_managed, *import_managed;  // not for a consumer that only borrows
    int (*read)(void *object, DLTensor *tensor);       // borrows: the object keeps what the tensor points to
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
} ExchangeApi;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_MANAGED = 13 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6, DL_E4M3FN = 10, DL_E5M2 = 12 };

int tw_dlpack_code(const DLTensor *tensor);             // our dtype code, or -1
PyObject *tw_extents(const int64_t *values, int count);  // a tuple of ints
const ExchangeApi *tw_exchange_api(PyObject *type);  // NULL where a type has none that we can read; never an error

#endif
