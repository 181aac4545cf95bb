// `Event`: a point in a stream, to wait for or to time with.
#include "launcher.h"

typedef struct {
    PyObject_HEAD
    CUevent handle;
    int device;
} Event;

static PyTypeObject *event_type = NULL;

static PyObject *event_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"device", "timing", NULL};
    int index = 0, timing = 1, pushed;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|ip", names, &index, &timing)) {
        return NULL;
    }
    DeviceState *device = tw_device(index);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUevent handle = NULL;
    CUresult result = cu.EventCreate(&handle, timing ? 0 : CU_EVENT_DISABLE_TIMING);
    tw_leave(pushed);
    if (tw_check(result, "cuEventCreate") < 0) {
        return NULL;
    }
    Event *self = (Event *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        (void)cu.EventDestroy(handle);
        return NULL;
    }
    self->handle = handle;
    self->device = index;
    return (PyObject *)self;
}

static void event_dealloc(PyObject *object)
{
    Event *self = (Event *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->handle != NULL && tw_driver_is_usable()) {
        (void)cu.EventDestroy(self->handle);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

// Runs `call` with the event's context current.
static PyObject *on_stream(Event *self, PyObject *stream_object, int waits)
{
    CUstream stream;
    int pushed;
    DeviceState *device = tw_device(self->device);
    if (device == NULL || tw_parse_stream(stream_object, &stream) < 0 || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result =
        waits ? cu.StreamWaitEvent(stream, self->handle, 0) : cu.EventRecord(self->handle, stream);
    tw_leave(pushed);
    if (tw_check(result, waits ? "cuStreamWaitEvent" : "cuEventRecord") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *event_record(PyObject *self, PyObject *arguments)
{
    PyObject *stream = Py_None;
    return PyArg_ParseTuple(arguments, "|O", &stream) ? on_stream((Event *)self, stream, 0) : NULL;
}

static PyObject *event_hold(PyObject *self, PyObject *arguments)
{
    PyObject *stream = Py_None;
    return PyArg_ParseTuple(arguments, "|O", &stream) ? on_stream((Event *)self, stream, 1) : NULL;
}

static PyObject *event_synchronize(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Event *self = (Event *)object;
    if (tw_device(self->device) == NULL || tw_refuse_in_capture(NULL, "waiting for an event") < 0) {
        return NULL;
    }
    CUresult result;
    Py_BEGIN_ALLOW_THREADS
    result = cu.EventSynchronize(self->handle);
    Py_END_ALLOW_THREADS
    if (tw_check(result, "cuEventSynchronize") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *event_is_done(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Event *self = (Event *)object;
    if (tw_device(self->device) == NULL || tw_refuse_in_capture(NULL, "asking whether an event has happened") < 0) {
        return NULL;
    }
    CUresult result = cu.EventQuery(self->handle);
    if (result == CUDA_ERROR_NOT_READY) {
        Py_RETURN_FALSE;
    }
    if (tw_check(result, "cuEventQuery") < 0) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

static PyObject *event_elapsed_ms(PyObject *object, PyObject *other)
{
    Event *self = (Event *)object;
    if (!PyObject_TypeCheck(other, event_type)) {
        return PyErr_Format(tw_argument_error, "elapsed_ms() wants an Event, not %R", (PyObject *)Py_TYPE(other));
    }
    if (tw_device(self->device) == NULL) {
        return NULL;
    }
    float milliseconds = 0;
    CUresult result = cu.EventElapsedTime(&milliseconds, self->handle, ((Event *)other)->handle);
    if (tw_check(result, "cuEventElapsedTime") < 0) {
        return NULL;
    }
    return PyFloat_FromDouble(milliseconds);
}

static PyMethodDef event_methods[] = {
    {"record", event_record, METH_VARARGS, "Mark the present end of a stream (default: legacy)."},
    {"hold", event_hold, METH_VARARGS, "Make a stream wait for this event (default: legacy)."},
    {"synchronize", event_synchronize, METH_NOARGS, "Block until the event has happened."},
    {"is_done", event_is_done, METH_NOARGS, "Return whether the event has happened."},
    {"elapsed_ms", event_elapsed_ms, METH_O, "Return the milliseconds from this event to a later one."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot event_slots[] = {
    {Py_tp_doc, "Event(device=0, timing=True): a point in a stream."},
    {Py_tp_new, event_new},
    {Py_tp_dealloc, event_dealloc},
    {Py_tp_methods, event_methods},
    {0, NULL},
};

static PyType_Spec event_spec = {
    .name = "tilewright.runtime._launcher.Event",
    .basicsize = sizeof(Event),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = event_slots,
};

int tw_event_ready(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&event_spec);
    if (type == NULL) {
        return -1;
    }
    event_type = (PyTypeObject *)type;
    return PyModule_AddObjectRef(module, "Event", type);
}
