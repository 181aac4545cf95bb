// The CUDA driver API as this extension sees it: our own declarations of the few types and functions it
// calls, so that it builds without the CUDA toolkit and links against nothing but libc. The layouts are
// part of the driver's stable ABI (cuda.h, CUDA 11.8 to 13.x).
#ifndef TILEWRIGHT_DRIVER_H
#define TILEWRIGHT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;

typedef struct {
    int id;
    char pad[8 - sizeof(int)];
    union {
        char pad[64];
        struct { unsigned int x, y, z; } cluster;
        int allowed;
    } value;
} CUlaunchAttribute;

typedef struct {
    unsigned int grid_x, grid_y, grid_z;
    unsigned int block_x, block_y, block_z;
    unsigned int shared_bytes;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned int attribute_count;
} CUlaunchConfig;

typedef struct { _Alignas(64) uint64_t opaque[16]; } CUtensorMap;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
};

enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    STREAM_NON_BLOCKING = 1,
    // Above this, dynamic shared memory needs the function attribute to be raised first.
    DEFAULT_SHARED_BYTES = 48 * 1024,
};


// FUNCTION(field, symbol, required, parameters): symbols carry the version suffix that cuda.h's macros add.
#define TW_DRIVER_FUNCTIONS(FUNCTION) \
    FUNCTION(Init, "cuInit", 1, (unsigned int)) \
    FUNCTION(DriverGetVersion, "cuDriverGetVersion", 1, (int *)) \
    FUNCTION(GetErrorName, "cuGetErrorName", 1, (CUresult, const char **)) \
    FUNCTION(DeviceGetCount, "cuDeviceGetCount", 1, (int *)) \
    FUNCTION(DeviceGet, "cuDeviceGet", 1, (CUdevice *, int)) \
    FUNCTION(DeviceGetAttribute, "cuDeviceGetAttribute", 1, (int *, int, CUdevice)) \
    FUNCTION(DeviceTotalMem, "cuDeviceTotalMem_v2", 1, (size_t *, CUdevice)) \
    FUNCTION(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 1, (CUcontext *, CUdevice)) \
    FUNCTION(CtxGetCurrent, "cuCtxGetCurrent", 1, (CUcontext *)) \
    FUNCTION(CtxSetCurrent, "cuCtxSetCurrent", 1, (CUcontext)) \
    FUNCTION(CtxPushCurrent, "cuCtxPushCurrent_v2", 1, (CUcontext)) \
    FUNCTION(CtxPopCurrent, "cuCtxPopCurrent_v2", 1, (CUcontext *)) \
    FUNCTION(MemAlloc, "cuMemAlloc_v2", 1, (CUdeviceptr *, size_t)) \
    FUNCTION(MemFree, "cuMemFree_v2", 1, (CUdeviceptr)) \
    FUNCTION(MemAllocAsync, "cuMemAllocAsync", 0, (CUdeviceptr *, size_t, CUstream)) \
    FUNCTION(MemFreeAsync, "cuMemFreeAsync", 0, (CUdeviceptr, CUstream)) \
    FUNCTION(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", 1, (CUdeviceptr, const void *, size_t, CUstream)) \
    FUNCTION(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", 1, (void *, CUdeviceptr, size_t, CUstream)) \
    FUNCTION(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", 1, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    FUNCTION(MemsetD8Async, "cuMemsetD8Async", 1, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    FUNCTION(PointerGetAttribute, "cuPointerGetAttribute", 1, (void *, int, CUdeviceptr)) \
    FUNCTION(MemGetInfo, "cuMemGetInfo_v2", 1, (size_t *, size_t *)) \
    FUNCTION(StreamCreateWithPriority, "cuStreamCreateWithPriority", 1, (CUstream *, unsigned int, int)) \
    FUNCTION(StreamDestroy, "cuStreamDestroy_v2", 1, (CUstream)) \
    FUNCTION(StreamQuery, "cuStreamQuery", 1, (CUstream)) \
    FUNCTION(StreamSynchronize, "cuStreamSynchronize", 1, (CUstream)) \
    FUNCTION(StreamWaitEvent, "cuStreamWaitEvent", 1, (CUstream, CUevent, unsigned int)) \
    FUNCTION(StreamIsCapturing, "cuStreamIsCapturing", 1, (CUstream, int *)) \
    FUNCTION(StreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2", 0, \
             (CUstream, int *, uint64_t *, CUgraph *, const void **, size_t *)) \
    FUNCTION(StreamBeginCapture, "cuStreamBeginCapture_v2", 1, (CUstream, int)) \
    FUNCTION(StreamEndCapture, "cuStreamEndCapture", 1, (CUstream, CUgraph *)) \
    FUNCTION(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 1, (int *)) \
    FUNCTION(GraphGetNodes, "cuGraphGetNodes", 1, (CUgraph, void **, size_t *)) \
    FUNCTION(GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 1, \
             (CUgraphExec *, CUgraph, unsigned long long)) \
    FUNCTION(GraphLaunch, "cuGraphLaunch", 1, (CUgraphExec, CUstream)) \
    FUNCTION(GraphExecDestroy, "cuGraphExecDestroy", 1, (CUgraphExec)) \
    FUNCTION(GraphDestroy, "cuGraphDestroy", 1, (CUgraph)) \
    FUNCTION(UserObjectCreate, "cuUserObjectCreate", 0, \
             (CUuserObject *, void *, void (*)(void *), unsigned int, unsigned int)) \
    FUNCTION(GraphRetainUserObject, "cuGraphRetainUserObject", 0, \
             (CUgraph, CUuserObject, unsigned int, unsigned int)) \
    FUNCTION(EventCreate, "cuEventCreate", 1, (CUevent *, unsigned int)) \
    FUNCTION(EventDestroy, "cuEventDestroy_v2", 1, (CUevent)) \
    FUNCTION(EventRecord, "cuEventRecord", 1, (CUevent, CUstream)) \
    FUNCTION(EventQuery, "cuEventQuery", 1, (CUevent)) \
    FUNCTION(EventSynchronize, "cuEventSynchronize", 1, (CUevent)) \
    FUNCTION(EventElapsedTime, "cuEventElapsedTime", 1, (float *, CUevent, CUevent)) \
    FUNCTION(LibraryLoadData, "cuLibraryLoadData", 0, \
             (CUlibrary *, const void *, int *, void **, unsigned int, int *, void **, unsigned int)) \
    FUNCTION(LibraryUnload, "cuLibraryUnload", 0, (CUlibrary)) \
    FUNCTION(LibraryGetKernel, "cuLibraryGetKernel", 0, (CUkernel *, CUlibrary, const char *)) \
    FUNCTION(KernelGetFunction, "cuKernelGetFunction", 0, (CUfunction *, CUkernel)) \
    FUNCTION(ModuleLoadDataEx, "cuModuleLoadDataEx", 1, \
             (CUmodule *, const void *, unsigned int, int *, void **)) \
    FUNCTION(ModuleUnload, "cuModuleUnload", 1, (CUmodule)) \
    FUNCTION(ModuleGetFunction, "cuModuleGetFunction", 1, (CUfunction *, CUmodule, const char *)) \
    FUNCTION(FuncSetAttribute, "cuFuncSetAttribute", 1, (CUfunction, int, int)) \
    FUNCTION(OccupancyMaxActiveBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, \
             (int *, CUfunction, int, size_t)) \
    FUNCTION(LaunchKernel, "cuLaunchKernel", 1, \
             (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
              unsigned int, CUstream, void **, void **)) \
    FUNCTION(LaunchKernelEx, "cuLaunchKernelEx", 0, \
             (const CUlaunchConfig *, CUfunction, void **, void **)) \
    FUNCTION(TensorMapEncodeTiled, "cuTensorMapEncodeTiled", 0, \
             (CUtensorMap *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, \
              const uint32_t *, int, int, int, int))

typedef struct {
#define TW_FIELD(field, symbol, required, parameters) CUresult (*field) parameters;
    TW_DRIVER_FUNCTIONS(TW_FIELD)
#undef TW_FIELD
} DriverTable;

#endif
