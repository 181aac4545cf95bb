// `Buffer`: device memory that a Python object owns, or a view into one. Subclassed by
// `tilewright.runtime.memory.DeviceArray`, which adds shape and strides.
#include "launcher.h"

PyTypeObject *tw_buffer_type = NULL;

static void storage_free_memory(Storage *storage)
{
    if (!storage->freed) {
        storage->freed = 1;
        if (storage->address != 0 && !storage->is_borrowed) {
            tw_pool_release(storage->device, storage->address, storage->capacity, storage->stream);
        }
    }
}

static void storage_release(Storage *storage)
{
    if (--storage->references == 0) {
        storage_free_memory(storage);
        Py_XDECREF(storage->owner);
        PyMem_Free(storage);
    }
}

static int check_code(int code)
{
    if (code < 0 || code >= CODE_COUNT) {
        PyErr_Format(tw_argument_error, "dtype code %d does not exist; codes are 0 to %d", code, CODE_COUNT - 1);
        return -1;
    }
    return 0;
}

static PyObject *buffer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"size_bytes", "code", "device", "stream", NULL};
    Py_ssize_t size;
    int code, index = 0;
    PyObject *stream_object = Py_None;
    CUstream stream = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ni|iO", names, &size, &code, &index,
                                     &stream_object) ||
        check_code(code) < 0 || tw_parse_stream(stream_object, &stream) < 0) {
        return NULL;
    }
    if (size < 0) {
        return PyErr_Format(tw_argument_error, "a buffer cannot have %zd bytes", size);
    }
    DeviceState *device = tw_device(index);
    if (device == NULL) {
        return NULL;
    }
    // While this thread records a graph, an array that names no stream belongs to the graph's.
    if (stream_object == Py_None) {
        (void)tw_recorded_stream(index, &stream, &stream_object);
    }
    Storage *storage = PyMem_Calloc(1, sizeof *storage);
    if (storage == NULL) {
        return PyErr_NoMemory();
    }
    *storage = (Storage){.references = 1, .device = index, .stream = stream};
    if (size > 0 && tw_pool_allocate(device, index, (size_t)size, stream, &storage->address,
                                     &storage->capacity) < 0) {
        PyMem_Free(storage);
        return NULL;
    }
    if (stream_object != Py_None && !PyLong_Check(stream_object)) {
        storage->owner = Py_NewRef(stream_object);
    }
    Buffer *self = (Buffer *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        storage_release(storage);
        return NULL;
    }
    self->storage = storage;
    self->address = storage->address;
    self->size_bytes = (size_t)size;
    self->code = (unsigned char)code;
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object)
{
    Buffer *self = (Buffer *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *error_type, *error, *traceback;
    PyErr_Fetch(&error_type, &error, &traceback);
    if (self->storage != NULL) {
        storage_release(self->storage);
    }
    PyErr_Restore(error_type, error, traceback);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int check_alive(const Buffer *self)
{
    if (self->storage->freed) {
        PyErr_SetString(tw_argument_error, "this buffer was freed");
        return -1;
    }
    return 0;
}

static PyObject *buffer_free(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    storage_free_memory(((Buffer *)object)->storage);
    Py_RETURN_NONE;
}

// alias(type, offset_bytes, size_bytes, code): another object over a part of the same memory.
static PyObject *buffer_alias(PyObject *object, PyObject *arguments)
{
    Buffer *self = (Buffer *)object;
    PyObject *type;
    Py_ssize_t offset, size;
    int code;
    if (!PyArg_ParseTuple(arguments, "Onni", &type, &offset, &size, &code) || check_code(code) < 0 ||
        check_alive(self) < 0) {
        return NULL;
    }
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, tw_buffer_type)) {
        return PyErr_Format(tw_argument_error, "alias() wants a subclass of Buffer, not %R", type);
    }
    if (offset < 0 || size < 0 || (size_t)offset > self->size_bytes ||
        (size_t)size > self->size_bytes - (size_t)offset) {
        return PyErr_Format(tw_argument_error, "bytes %zd to %zd lie outside a buffer of %zu bytes", offset,
                            offset + size, self->size_bytes);
    }
    Buffer *view = (Buffer *)PyType_GenericAlloc((PyTypeObject *)type, 0);
    if (view == NULL) {
        return NULL;
    }
    view->storage = self->storage;
    view->storage->references++;
    view->address = self->address + (size_t)offset;
    view->size_bytes = (size_t)size;
    view->code = (unsigned char)code;
    return (PyObject *)view;
}

static PyObject *get_address(PyObject *self, void *Py_UNUSED(closure))
{
    return check_alive((Buffer *)self) < 0 ? NULL : PyLong_FromUnsignedLongLong(((Buffer *)self)->address);
}

static PyObject *get_size_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((Buffer *)self)->size_bytes);
}

static PyObject *get_code(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Buffer *)self)->code);
}

static PyObject *get_device_index(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Buffer *)self)->storage->device);
}

static PyObject *get_stream_handle(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr((void *)((Buffer *)self)->storage->stream);
}

static PyObject *get_is_freed(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Buffer *)self)->storage->freed);
}

static PyObject *get_is_read_only(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Buffer *)self)->storage->is_read_only);
}

static PyObject *get_version(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Buffer *)self)->storage->version);
}

static PyMethodDef buffer_methods[] = {
    {"free", buffer_free, METH_NOARGS, "Give the memory back now, ordered after the work on its stream."},
    {"alias", buffer_alias, METH_VARARGS, "Return another object over a part of the same memory."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef buffer_properties[] = {
    {"address", get_address, NULL, "Device address.", NULL},
    {"size_bytes", get_size_bytes, NULL, "Bytes that may be used.", NULL},
    {"code", get_code, NULL, "Position of the dtype in abi.dtypes.ALL.", NULL},
    {"device_index", get_device_index, NULL, "Ordinal of the device.", NULL},
    {"stream_handle", get_stream_handle, NULL, "Stream that orders allocation and freeing; 0 is legacy.", NULL},
    {"is_freed", get_is_freed, NULL, "Whether free() was called on it or on a view of it.", NULL},
    {"is_read_only", get_is_read_only, NULL, "Whether its owner forbids writing.", NULL},
    {"version", get_version, NULL, "How many launches and copies wrote to this storage.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, "Device memory, allocated and freed in the order of one stream."},
    {Py_tp_new, buffer_new},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_methods, buffer_methods},
    {Py_tp_getset, buffer_properties},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "tilewright.runtime._launcher.Buffer",
    .basicsize = sizeof(Buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = buffer_slots,
};

int tw_buffer_ready(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&buffer_spec);
    if (type == NULL) {
        return -1;
    }
    tw_buffer_type = (PyTypeObject *)type;
    return PyModule_AddObjectRef(module, "Buffer", type);
}

// borrow(type, address, size_bytes, code, device, stream, owner, read_only): memory that `owner` keeps alive.
PyObject *tw_borrow(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *type, *stream_object, *owner;
    unsigned long long address;
    Py_ssize_t size;
    int code, index, read_only;
    CUstream stream;
    if (!PyArg_ParseTuple(arguments, "OKniiOOp", &type, &address, &size, &code, &index, &stream_object, &owner,
                          &read_only) ||
        check_code(code) < 0 || tw_parse_stream(stream_object, &stream) < 0 || tw_device(index) == NULL) {
        return NULL;
    }
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, tw_buffer_type) || size < 0) {
        return PyErr_Format(tw_argument_error, "borrow() wants a subclass of Buffer and a size, not %R", type);
    }
    Storage *storage = PyMem_Calloc(1, sizeof *storage);
    Buffer *self = storage == NULL ? NULL : (Buffer *)PyType_GenericAlloc((PyTypeObject *)type, 0);
    if (self == NULL) {
        PyMem_Free(storage);
        return PyErr_NoMemory();
    }
    *storage = (Storage){.references = 1, .address = address, .device = index, .is_borrowed = 1,
                         .is_read_only = read_only, .stream = stream, .owner = Py_NewRef(owner)};
    self->storage = storage;
    self->address = address;
    self->size_bytes = (size_t)size;
    self->code = (unsigned char)code;
    return (PyObject *)self;
}

static Buffer *as_buffer(PyObject *object, Py_ssize_t size)
{
    if (!PyObject_TypeCheck(object, tw_buffer_type)) {
        PyErr_Format(tw_argument_error, "a Buffer is needed, not %R", (PyObject *)Py_TYPE(object));
        return NULL;
    }
    Buffer *buffer = (Buffer *)object;
    if (check_alive(buffer) < 0) {
        return NULL;
    }
    if (size < 0 || (size_t)size > buffer->size_bytes) {
        PyErr_Format(tw_argument_error, "%zd bytes do not fit a buffer of %zu bytes", size, buffer->size_bytes);
        return NULL;
    }
    return buffer;
}

static Buffer *as_writable(PyObject *object, Py_ssize_t size)
{
    Buffer *buffer = as_buffer(object, size);
    if (buffer != NULL && buffer->storage->is_read_only) {
        PyErr_SetString(tw_argument_error, "this buffer is read-only: its owner forbids writing");
        return NULL;
    }
    return buffer;
}

// copy_from_host(buffer, data): ordered on the buffer's stream; returns when `data` may be reused.
PyObject *tw_copy_from_host(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *object;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "Oy*", &object, &data)) {
        return NULL;
    }
    Buffer *buffer = as_writable(object, data.len);
    DeviceState *device = buffer == NULL ? NULL : tw_device(buffer->storage->device);
    int pushed;
    if (device == NULL || tw_refuse_in_capture(buffer->storage->stream, "copying from the host") < 0 ||
        tw_enter(device, &pushed) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    if (data.len > 0) {
        Py_BEGIN_ALLOW_THREADS
        result = cu.MemcpyHtoDAsync(buffer->address, data.buf, (size_t)data.len, buffer->storage->stream);
        if (result == CUDA_SUCCESS) {
            result = cu.StreamSynchronize(buffer->storage->stream);
        }
        Py_END_ALLOW_THREADS
        buffer->storage->version++;
    }
    tw_leave(pushed);
    PyBuffer_Release(&data);
    if (tw_check(result, "cuMemcpyHtoDAsync") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// copy_to_host(buffer, data): waits for the buffer's stream, so the result is complete.
PyObject *tw_copy_to_host(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *object;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "Ow*", &object, &data)) {
        return NULL;
    }
    Buffer *buffer = as_buffer(object, data.len);
    DeviceState *device = buffer == NULL ? NULL : tw_device(buffer->storage->device);
    int pushed;
    if (device == NULL || tw_refuse_in_capture(buffer->storage->stream, "copying to the host") < 0 ||
        tw_enter(device, &pushed) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    if (data.len > 0) {
        Py_BEGIN_ALLOW_THREADS
        result = cu.MemcpyDtoHAsync(data.buf, buffer->address, (size_t)data.len, buffer->storage->stream);
        if (result == CUDA_SUCCESS) {
            result = cu.StreamSynchronize(buffer->storage->stream);
        }
        Py_END_ALLOW_THREADS
    }
    tw_leave(pushed);
    PyBuffer_Release(&data);
    if (tw_check(result, "cuMemcpyDtoHAsync") < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// copy(destination, source): on one device; ordered on the destination's stream, after the source's.
PyObject *tw_copy(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *to, *from;
    if (!PyArg_ParseTuple(arguments, "OO", &to, &from)) {
        return NULL;
    }
    Buffer *source = as_buffer(from, 0);
    Buffer *destination = source == NULL ? NULL : as_writable(to, (Py_ssize_t)source->size_bytes);
    if (destination == NULL) {
        return NULL;
    }
    Storage *target = destination->storage, *origin = source->storage;
    if (target->device != origin->device) {
        return PyErr_Format(tw_argument_error, "cannot copy from device %d to device %d", origin->device,
                            target->device);
    }
    DeviceState *device = tw_device(target->device);
    int pushed, status = 0;
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    if (source->size_bytes > 0) {
        // Inside a capture the order with streams outside it is the capturing program's own affair.
        int is_ordered = origin->stream != target->stream && !tw_is_capturing(target->stream) &&
                         !tw_is_capturing(origin->stream);
        if (is_ordered) {
            status = tw_order(device, origin->stream, target->stream);
        }
        if (status == 0) {
            status = tw_check(
                cu.MemcpyDtoDAsync(destination->address, source->address, source->size_bytes, target->stream),
                "cuMemcpyDtoDAsync");
        }
        if (status == 0 && tw_is_recorded(target->stream)) {
            status = tw_record(from, 0) < 0 ? -1 : tw_record(to, 1);
        }
        // The source may be freed, and handed out again, on its own stream.
        if (status == 0 && is_ordered) {
            status = tw_order(device, target->stream, origin->stream);
        }
        target->version++;
    }
    tw_leave(pushed);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// fill(buffer, byte): every byte of the buffer.
PyObject *tw_fill(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *object;
    unsigned char byte;
    int pushed;
    if (!PyArg_ParseTuple(arguments, "Ob", &object, &byte)) {
        return NULL;
    }
    Buffer *buffer = as_writable(object, 0);
    DeviceState *device = buffer == NULL ? NULL : tw_device(buffer->storage->device);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    if (buffer->size_bytes > 0) {
        result = cu.MemsetD8Async(buffer->address, byte, buffer->size_bytes, buffer->storage->stream);
        buffer->storage->version++;
    }
    tw_leave(pushed);
    if (tw_check(result, "cuMemsetD8Async") < 0 ||
        (tw_is_recorded(buffer->storage->stream) && tw_record(object, 1) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}
