// DLPack's ABI, version 0: the only form that every exporter can still give and every importer takes.
#ifndef TILEWRIGHT_DLPACK_H
#define TILEWRIGHT_DLPACK_H

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

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_MANAGED = 13 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6, DL_E4M3FN = 10, DL_E5M2 = 12 };

int tw_dlpack_code(const DLTensor *tensor);  // our dtype code, or -1

#endif
