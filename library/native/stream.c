// Streams of ours: made, asked, ordered and destroyed. `tilewright.runtime.stream.Stream` is the object over them.
#include "launcher.h"

// stream_create(device, priority) -> handle of a stream that is not ordered with the legacy one
PyObject *tw_stream_create(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, priority, pushed;
    if (!PyArg_ParseTuple(arguments, "ii", &index, &priority)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUstream stream = NULL;
    CUresult result = cu.StreamCreateWithPriority(&stream, STREAM_NON_BLOCKING, priority);
    tw_leave(pushed);
    if (tw_check(result, "cuStreamCreateWithPriority") < 0) {
        return NULL;
    }
    return PyLong_FromVoidPtr((void *)stream);
}

// stream_destroy(device, handle): without waiting. The legacy stream goes on after its work, which makes its cached
// memory the legacy stream's: a later stream may get the same handle.
PyObject *tw_stream_destroy(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, pushed;
    unsigned long long handle;
    if (!PyArg_ParseTuple(arguments, "iK", &index, &handle)) {
        return NULL;
    }
    // In a forked child the stream is the parent's.
    if (!tw_driver_is_usable()) {
        Py_RETURN_NONE;
    }
    CUstream stream = (CUstream)(uintptr_t)handle;
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    int status = tw_order(device, stream, NULL);
    if (status == 0) {
        status = tw_pool_adopt(index, stream);
    }
    if (status == 0) {
        status = tw_check(cu.StreamDestroy(stream), "cuStreamDestroy");
    }
    tw_leave(pushed);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// stream_is_done(device, stream)
PyObject *tw_stream_is_done(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, pushed;
    PyObject *object;
    CUstream stream;
    if (!PyArg_ParseTuple(arguments, "iO", &index, &object) || tw_parse_stream(object, &stream) < 0) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_refuse_in_capture(stream, "asking whether its work is done") < 0 ||
        tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result = cu.StreamQuery(stream);
    tw_leave(pushed);
    if (result == CUDA_ERROR_NOT_READY) {
        Py_RETURN_FALSE;
    }
    if (tw_check(result, "cuStreamQuery") < 0) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

// stream_order(device, first, then): work that is given to `then` from now on waits for the work on `first`, a
// stream of `device`; `then` may be another device's.
PyObject *tw_stream_order(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int index, pushed;
    PyObject *first_object, *then_object;
    CUstream first, then;
    if (!PyArg_ParseTuple(arguments, "iOO", &index, &first_object, &then_object) ||
        tw_parse_stream(first_object, &first) < 0 || tw_parse_stream(then_object, &then) < 0) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    int status = tw_order(device, first, then);
    tw_leave(pushed);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// stream_handle(stream) -> what the driver knows it by; 0 is the legacy stream
PyObject *tw_stream_handle(PyObject *Py_UNUSED(module), PyObject *object)
{
    CUstream stream;
    return tw_parse_stream(object, &stream) < 0 ? NULL : PyLong_FromVoidPtr((void *)stream);
}

// synchronize(device, stream)
PyObject *tw_stream_synchronize(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *object;
    CUstream stream;
    int index, pushed;
    if (!PyArg_ParseTuple(arguments, "iO", &index, &object) || tw_parse_stream(object, &stream) < 0) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_refuse_in_capture(stream, "waiting for it") < 0 || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result;
    Py_BEGIN_ALLOW_THREADS
    result = cu.StreamSynchronize(stream);
    Py_END_ALLOW_THREADS
    tw_leave(pushed);
    if (tw_check(result, "cuStreamSynchronize") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
