// Code on a device: loaded from a cubin or PTX, unloaded, and how much of it runs at once.
#include "launcher.h"

// load(device, code, entry, shared_bytes) -> (is_library, handle, function)
PyObject *tw_load(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, pushed;
    Py_buffer code;
    const char *entry;
    int shared_bytes;
    if (!PyArg_ParseTuple(arguments, "iy*si", &index, &code, &entry, &shared_bytes)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        PyBuffer_Release(&code);
        return NULL;
    }
    int is_library = cu.LibraryLoadData != NULL && cu.LibraryUnload != NULL && cu.LibraryGetKernel != NULL &&
                     cu.KernelGetFunction != NULL;
    CUlibrary library = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    const char *call;
    CUresult result;
    Py_BEGIN_ALLOW_THREADS
    if (is_library) {
        CUkernel kernel = NULL;
        call = "cuLibraryLoadData";
        result = cu.LibraryLoadData(&library, code.buf, NULL, NULL, 0, NULL, NULL, 0);
        if (result == CUDA_SUCCESS) {
            call = "cuLibraryGetKernel";
            result = cu.LibraryGetKernel(&kernel, library, entry);
        }
        if (result == CUDA_SUCCESS) {
            call = "cuKernelGetFunction";
            result = cu.KernelGetFunction(&function, kernel);
        }
    } else {
        call = "cuModuleLoadDataEx";
        result = cu.ModuleLoadDataEx(&module, code.buf, 0, NULL, NULL);
        if (result == CUDA_SUCCESS) {
            call = "cuModuleGetFunction";
            result = cu.ModuleGetFunction(&function, module, entry);
        }
    }
    if (result == CUDA_SUCCESS && shared_bytes > DEFAULT_SHARED_BYTES) {
        // Set here and never again: the call synchronises.
        call = "cuFuncSetAttribute";
        result = cu.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes);
    }
    if (result != CUDA_SUCCESS) {
        if (library != NULL) {
            (void)cu.LibraryUnload(library);
        }
        if (module != NULL) {
            (void)cu.ModuleUnload(module);
        }
    }
    Py_END_ALLOW_THREADS
    tw_leave(pushed);
    PyBuffer_Release(&code);
    if (tw_check(result, call) < 0) {
        return NULL;
    }
    uintptr_t handle = is_library ? (uintptr_t)library : (uintptr_t)module;
    return Py_BuildValue("(NKK)", PyBool_FromLong(is_library), (unsigned long long)handle,
                         (unsigned long long)(uintptr_t)function);
}

// unload(device, is_library, handle)
PyObject *tw_unload(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, is_library, pushed;
    unsigned long long handle;
    if (!PyArg_ParseTuple(arguments, "ipK", &index, &is_library, &handle)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result = is_library ? cu.LibraryUnload((CUlibrary)(uintptr_t)handle)
                                 : cu.ModuleUnload((CUmodule)(uintptr_t)handle);
    tw_leave(pushed);
    if (tw_check(result, is_library ? "cuLibraryUnload" : "cuModuleUnload") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// resident_programs(device, function, threads, shared_bytes): thread blocks that fit on the device at once.
PyObject *tw_resident_programs(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, threads, pushed, blocks = 0, processors = 0;
    unsigned long long function;
    Py_ssize_t shared_bytes;
    if (!PyArg_ParseTuple(arguments, "iKin", &index, &function, &threads, &shared_bytes)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result =
        cu.OccupancyMaxActiveBlocks(&blocks, (CUfunction)(uintptr_t)function, threads, (size_t)shared_bytes);
    tw_leave(pushed);
    if (tw_check(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor") < 0 ||
        tw_check(cu.DeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->handle),
                 "cuDeviceGetAttribute") < 0) {
        return NULL;
    }
    return PyLong_FromLongLong((long long)blocks * processors);
}
