// Opens libcuda at first use, keeps the table of its functions, one primary context per device, and turns
// every CUresult into a typed exception.
#include "launcher.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

DriverTable cu;
int tw_driver_is_open = 0, tw_was_forked = 0;
DeviceState tw_devices[MAX_DEVICES];
PyObject *tw_driver_error, *tw_no_driver_error, *tw_out_of_memory_error, *tw_argument_error, *tw_launch_error;

static int driver_version = 0;
static int device_count = 0;
static pid_t opened_by = 0;

int tw_import_errors(void)
{
    PyObject *module = PyImport_ImportModule("tilewright.errors");
    if (module == NULL) {
        return -1;
    }
    tw_driver_error = PyObject_GetAttrString(module, "DriverError");
    tw_no_driver_error = PyObject_GetAttrString(module, "NoDriverError");
    tw_out_of_memory_error = PyObject_GetAttrString(module, "OutOfMemoryError");
    tw_argument_error = PyObject_GetAttrString(module, "ArgumentError");
    tw_launch_error = PyObject_GetAttrString(module, "LaunchError");
    Py_DECREF(module);
    return tw_driver_error && tw_no_driver_error && tw_out_of_memory_error && tw_argument_error && tw_launch_error ? 0
                                                                                                              : -1;
}

static int raise_driver_error(PyObject *type, CUresult code, const char *call, PyObject *message)
{
    if (message == NULL) {
        return -1;
    }
    PyObject *positional = PyTuple_Pack(1, message);
    PyObject *keywords = Py_BuildValue("{s:i,s:s}", "code", code, "call", call);
    Py_DECREF(message);
    if (positional != NULL && keywords != NULL) {
        PyObject *error = PyObject_Call(type, positional, keywords);
        if (error != NULL) {
            PyErr_SetObject(type, error);
            Py_DECREF(error);
        }
    }
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return -1;
}

int tw_raise(CUresult result, const char *call)
{
    const char *name = NULL;
    if (cu.GetErrorName == NULL || cu.GetErrorName(result, &name) != CUDA_SUCCESS || name == NULL) {
        name = "unknown CUresult";
    }
    return raise_driver_error(tw_driver_error, result, call,
                              PyUnicode_FromFormat("%s failed with %d (%s)", call, result, name));
}

static int no_driver(CUresult code, const char *call, const char *what)
{
    return raise_driver_error(
        tw_no_driver_error, code, call,
        PyUnicode_FromFormat("%s; NumPy arguments run in the interpreter, `tilewright doctor` tells more", what));
}

/* A driver that is there and cannot be loaded is a fault of the machine; none at all is not. The loader tells them apart
   in words alone, in which glibc and musl agree: of a missing file the name, then what is wrong. */
static int no_library(const char *fault)
{
    const char *name = fault == NULL ? NULL : strstr(fault, "libcuda.so.1: ");
    if (fault == NULL || (name != NULL && strstr(name, "No such file or directory") != NULL)) {
        return no_driver(0, "dlopen", "no CUDA driver on this machine (libcuda.so.1 was not found)");
    }
    char what[512];
    snprintf(what, sizeof what, "the CUDA driver cannot be loaded (%s)", fault);
    return no_driver(0, "libcuda.so.1", what);
}

static int load_table(void)
{
    static void *library = NULL;
    if (library == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        return no_library(dlerror());
    }
#define TW_LOAD(field, symbol, required, parameters) \
    *(void **)&cu.field = dlsym(library, symbol); \
    if (required && cu.field == NULL) { \
        return no_driver(0, symbol, "the CUDA driver is too old: it lacks " symbol " (r525 or newer is needed)"); \
    }
    TW_DRIVER_FUNCTIONS(TW_LOAD)
#undef TW_LOAD
    return 0;
}

int tw_open_driver(void)
{
    if (tw_driver_is_open) {
        // The flag is set by os.register_at_fork; the pid check catches a fork made outside Python and costs
        // a system call, so only this slow path makes it.
        if (tw_was_forked || getpid() != opened_by) {
            return raise_driver_error(
                tw_driver_error, 3, "fork",
                PyUnicode_FromString("the CUDA driver was opened before this process was forked, and CUDA does "
                                     "not survive a fork; start workers with the 'spawn' method, or use "
                                     "the GPU first in the child"));
        }
        return 0;
    }
    if (load_table() < 0) {
        return -1;
    }
    CUresult result = cu.Init(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        return no_driver(result, "cuInit", "a CUDA driver is installed, but it sees no device");
    }
    if (result != CUDA_SUCCESS) {
        const char *name = NULL;
        char text[160];
        if (cu.GetErrorName(result, &name) != CUDA_SUCCESS || name == NULL) {
            name = "unknown CUresult";
        }
        PyOS_snprintf(text, sizeof text, "the CUDA driver does not start: cuInit failed with %d (%s)", result,
                      name);
        return no_driver(result, "cuInit", text);
    }
    if (tw_check(cu.DriverGetVersion(&driver_version), "cuDriverGetVersion") < 0 ||
        tw_check(cu.DeviceGetCount(&device_count), "cuDeviceGetCount") < 0) {
        return -1;
    }
    if (device_count == 0) {
        return no_driver(CUDA_ERROR_NO_DEVICE, "cuDeviceGetCount",
                         "a CUDA driver is installed, but it sees no device");
    }
    if (device_count > MAX_DEVICES) {
        device_count = MAX_DEVICES;
    }
    opened_by = getpid();
    tw_driver_is_open = 1;
    return 0;
}

static int check_index(int index)
{
    if (tw_open_driver() < 0) {
        return -1;
    }
    if (index < 0 || index >= device_count) {
        PyErr_Format(tw_argument_error, "device %d does not exist; this machine has %d", index, device_count);
        return -1;
    }
    return 0;
}

DeviceState *tw_open_device(int index)
{
    if (check_index(index) < 0) {
        return NULL;
    }
    DeviceState *device = &tw_devices[index];
    if (device->context != NULL) {
        return device;
    }
    CUcontext context = NULL;
    size_t total = 0;
    if (tw_check(cu.DeviceGet(&device->handle, index), "cuDeviceGet") < 0 ||
        tw_check(cu.DeviceTotalMem(&total, device->handle), "cuDeviceTotalMem") < 0 ||
        tw_check(cu.DevicePrimaryCtxRetain(&context, device->handle), "cuDevicePrimaryCtxRetain") < 0) {
        return NULL;
    }
    int pools = 0;
    if (cu.MemAllocAsync == NULL || cu.MemFreeAsync == NULL ||
        cu.DeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device->handle) !=
            CUDA_SUCCESS) {
        pools = 0;
    }
    device->pools_supported = pools;
    device->cache_limit = total / 8;
    device->context = context;
    int pushed = 0;
    if (tw_enter(device, &pushed) < 0) {
        device->context = NULL;
        return NULL;
    }
    CUresult result = cu.EventCreate(&device->order_event, CU_EVENT_DISABLE_TIMING);
    tw_leave(pushed);
    if (tw_check(result, "cuEventCreate") < 0) {
        device->context = NULL;
        return NULL;
    }
    return device;
}

int tw_switch_context(const DeviceState *device, int *pushed)
{
    CUcontext current = NULL;
    if (tw_check(cu.CtxGetCurrent(&current), "cuCtxGetCurrent") < 0) {
        return -1;
    }
    // A thread without a context gets the primary one for good, as the runtime API does; a thread that has
    // another one finds it again afterwards.
    if (current == NULL) {
        return tw_check(cu.CtxSetCurrent(device->context), "cuCtxSetCurrent");
    }
    *pushed = 1;
    return tw_check(cu.CtxPushCurrent(device->context), "cuCtxPushCurrent");
}

void tw_leave(int pushed)
{
    CUcontext ignored;
    if (pushed) {
        (void)cu.CtxPopCurrent(&ignored);
    }
}

int tw_is_capturing(CUstream stream)
{
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    // The legacy stream (0 or 1) can never be captured, and asking for it while another one is gives an error.
    if ((uintptr_t)stream <= 1 || cu.StreamIsCapturing(stream, &status) != CUDA_SUCCESS) {
        return 0;
    }
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int tw_order(DeviceState *device, CUstream first, CUstream then)
{
    if (tw_check(cu.EventRecord(device->order_event, first), "cuEventRecord") < 0) {
        return -1;
    }
    return tw_check(cu.StreamWaitEvent(then, device->order_event, 0), "cuStreamWaitEvent");
}

PyObject *tw_driver_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return tw_open_driver() < 0 ? NULL : PyLong_FromLong(driver_version);
}

PyObject *tw_device_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return tw_open_driver() < 0 ? NULL : PyLong_FromLong(device_count);
}

PyObject *tw_device_attribute(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, attribute, value = 0;
    CUdevice handle;
    if (!PyArg_ParseTuple(arguments, "ii", &index, &attribute) || check_index(index) < 0 ||
        tw_check(cu.DeviceGet(&handle, index), "cuDeviceGet") < 0 ||
        tw_check(cu.DeviceGetAttribute(&value, attribute, handle), "cuDeviceGetAttribute") < 0) {
        return NULL;
    }
    return PyLong_FromLong(value);
}

PyObject *tw_device_total_memory(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index;
    size_t total = 0;
    CUdevice handle;
    if (!PyArg_ParseTuple(arguments, "i", &index) || check_index(index) < 0 ||
        tw_check(cu.DeviceGet(&handle, index), "cuDeviceGet") < 0 ||
        tw_check(cu.DeviceTotalMem(&total, handle), "cuDeviceTotalMem") < 0) {
        return NULL;
    }
    return PyLong_FromSize_t(total);
}

PyObject *tw_after_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    tw_was_forked = tw_driver_is_open;
    Py_RETURN_NONE;
}

PyObject *tw_capture_status(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *object;
    CUstream stream;
    if (!PyArg_ParseTuple(arguments, "O", &object) || tw_parse_stream(object, &stream) < 0 ||
        tw_open_driver() < 0) {
        return NULL;
    }
    return PyBool_FromLong(tw_is_capturing(stream));
}
