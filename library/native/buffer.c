// `Buffer`: device memory that a Python object owns, or a view into one. Subclassed by
// `tilewright.runtime.memory.DeviceArray`, which gives it shape and strides.
//
// Those lie in the object, with the tuple of all that the plan of an operation depends on: an operation asks for that
// of each of its arrays at every call.
#include "launcher.h"

PyTypeObject *tw_buffer_type = NULL;
static PyTypeObject *geometry_type = NULL;  // a subclass of tuple
static newfunc new_tuple = NULL;

static void storage_free_memory(Storage *storage)
{
    if (!storage->freed) {
        storage->freed = 1;
        if (storage->address != 0 && !storage->is_borrowed) {
            tw_pool_release(storage->device, storage->address, storage->capacity, storage->stream,
                            storage->capture);
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

int tw_stream_of(const Storage *storage, CUstream *stream)
{
    *stream = storage->stream;
    return storage->has_source ? tw_current_stream(&storage->source, storage->device, stream) : 0;
}

static int check_code(int code)
{
    if (code < 0 || code >= CODE_COUNT) {
        PyErr_Format(tw_argument_error, "dtype code %d does not exist; codes are 0 to %d", code, CODE_COUNT - 1);
        return -1;
    }
    return 0;
}

// New memory in the order of a stream, which `stream_object` keeps unless it is None or a handle.
static Buffer *allocate(PyTypeObject *type, size_t size, int code, int index, PyObject *stream_object, CUstream stream)
{
    DeviceState *device = tw_device(index);
    if (device == NULL) {
        return NULL;
    }
    Storage *storage = PyMem_Calloc(1, sizeof *storage);
    if (storage == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *storage = (Storage){.references = 1, .device = index, .stream = stream, .capture = tw_foreign_capture(stream)};
    if (size > 0 && tw_pool_allocate(device, index, size, stream, storage->capture, &storage->address,
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
    self->size_bytes = size;
    self->code = (unsigned char)code;
    return self;
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
    // While this thread records a graph, an array that names no stream belongs to the graph's.
    if (stream_object == Py_None) {
        (void)tw_recorded_stream(index, &stream, &stream_object);
    }
    return (PyObject *)allocate(type, (size_t)size, code, index, stream_object, stream);
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
    Py_XDECREF(self->shape);
    Py_XDECREF(self->strides);
    Py_XDECREF(self->geometry);
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

int tw_check_buffer_type(PyObject *type)
{
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, tw_buffer_type)) {
        PyErr_Format(tw_argument_error, "a subclass of Buffer is needed, not %R", type);
        return -1;
    }
    return 0;
}

// alias(type, offset_bytes, size_bytes, code): another object over a part of the same memory.
static PyObject *buffer_alias(PyObject *object, PyObject *arguments)
{
    Buffer *self = (Buffer *)object;
    PyObject *type;
    Py_ssize_t offset, size;
    int code;
    if (!PyArg_ParseTuple(arguments, "Onni", &type, &offset, &size, &code) || check_code(code) < 0 ||
        check_alive(self) < 0 || tw_check_buffer_type(type) < 0) {
        return NULL;
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
    CUstream stream;
    return tw_stream_of(((Buffer *)self)->storage, &stream) < 0 ? NULL : PyLong_FromVoidPtr((void *)stream);
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

static PyObject *get_shape(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *shape = ((Buffer *)self)->shape;
    return Py_NewRef(shape == NULL ? Py_None : shape);
}

static PyObject *get_strides(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *strides = ((Buffer *)self)->strides;
    return Py_NewRef(strides == NULL ? Py_None : strides);
}

static void replace(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    *place = Py_XNewRef(value);
    Py_XDECREF(old);
}

// lay_out(shape, strides): how the memory is an array.
static PyObject *buffer_lay_out(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Buffer *self = (Buffer *)object;
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1]) ||
        PyTuple_Size(arguments[0]) != PyTuple_Size(arguments[1])) {
        return PyErr_Format(tw_argument_error, "lay_out() wants two tuples of one length");
    }
    replace(&self->shape, arguments[0]);
    replace(&self->strides, arguments[1]);
    replace(&self->geometry, NULL);
    Py_RETURN_NONE;
}

PyObject *tw_geometry(Buffer *self)
{
    if (check_alive(self) < 0) {
        return NULL;
    }
    if (self->geometry != NULL) {
        return Py_NewRef(self->geometry);
    }
    if (geometry_type == NULL || self->shape == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "lay_out() or set_geometry_type() was not called");
        return NULL;
    }
    PyObject *is_aligned = self->address % FAST_DIVISOR == 0 ? Py_True : Py_False;
    PyObject *code = PyLong_FromLong(self->code), *device = PyLong_FromLong(self->storage->device);
    PyObject *plain =
        code == NULL || device == NULL ? NULL : PyTuple_Pack(5, self->shape, self->strides, code, is_aligned, device);
    PyObject *arguments = plain == NULL ? NULL : PyTuple_Pack(1, plain);
    // Not by a call of the type: that of a named tuple runs Python.
    self->geometry = arguments == NULL ? NULL : new_tuple(geometry_type, arguments, NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(plain);
    Py_XDECREF(device);
    Py_XDECREF(code);
    return Py_XNewRef(self->geometry);
}

static PyObject *get_geometry(PyObject *self, void *Py_UNUSED(closure))
{
    return tw_geometry((Buffer *)self);
}

// set_geometry_type(type): a named tuple of shape, strides, code, is_aligned and device.
PyObject *tw_set_geometry_type(PyObject *Py_UNUSED(module), PyObject *type)
{
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        return PyErr_Format(PyExc_TypeError, "a geometry is a tuple, not %R", type);
    }
    new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyTypeObject *old = geometry_type;
    geometry_type = (PyTypeObject *)Py_NewRef(type);
    Py_XDECREF((PyObject *)old);
    Py_RETURN_NONE;
}

static PyMethodDef buffer_methods[] = {
    {"free", buffer_free, METH_NOARGS, "Give the memory back now, ordered after the work on its stream."},
    {"alias", buffer_alias, METH_VARARGS, "Return another object over a part of the same memory."},
    {"lay_out", (PyCFunction)(void (*)(void))buffer_lay_out, METH_FASTCALL, "lay_out(shape, strides): make it an array."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef buffer_properties[] = {
    {"address", get_address, NULL, "Device address.", NULL},
    {"size_bytes", get_size_bytes, NULL, "Bytes that may be used.", NULL},
    {"code", get_code, NULL, "Position of the dtype in abi.dtypes.ALL.", NULL},
    {"device_index", get_device_index, NULL, "Ordinal of the device.", NULL},
    {"stream_handle", get_stream_handle, NULL,
     "Stream that orders allocation and freeing, of another library's memory its current one; 0 is legacy.", NULL},
    {"shape", get_shape, NULL, "Extents of the axes.", NULL},
    {"strides", get_strides, NULL, "Elements from one index of an axis to the next.", NULL},
    {"geometry", get_geometry, NULL, "Shape, strides, code, alignment and device.", NULL},
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

// The stream of a launch that has these arrays and names none: the recorded one, the current one of the library that an
// array is of, or the legacy stream. `owner` becomes what keeps it, or None.
static int launch_stream(PyObject *arrays, int device, CUstream *stream, PyObject **owner)
{
    const Storage *told = NULL;
    *stream = NULL;
    *owner = Py_None;
    if (tw_recorded_stream(device, stream, owner)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(arrays); i++) {
        PyObject *array = PyList_GetItem(arrays, i);
        if (PyObject_TypeCheck(array, tw_buffer_type)) {
            const Storage *storage = ((Buffer *)array)->storage;
            if (storage->has_source && (told == NULL || (storage->source.is_torch && !told->source.is_torch))) {
                told = storage;
            }
        }
    }
    return told == NULL ? 0 : tw_stream_of(told, stream);
}

// launch_stream(arrays, device) -> handle
PyObject *tw_launch_stream(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *arrays, *owner;
    int device;
    CUstream stream;
    if (!PyArg_ParseTuple(arguments, "O!i", &PyList_Type, &arrays, &device) ||
        launch_stream(arrays, device, &stream, &owner) < 0) {
        return NULL;
    }
    return PyLong_FromVoidPtr((void *)stream);
}

// allocate(type, geometry, arrays): a new array, which the geometry says to be row-major and aligned, on the stream of a
// launch that has these arrays.
PyObject *tw_allocate(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *geometry = count == 3 ? arguments[1] : Py_None;
    if (geometry_type == NULL || !PyObject_TypeCheck(geometry, geometry_type) || !PyList_Check(arguments[2])) {
        return PyErr_Format(PyExc_TypeError, "allocate() wants a type, a geometry and a list, not %R", geometry);
    }
    if (tw_check_buffer_type(arguments[0]) < 0) {
        return NULL;
    }
    PyObject *shape = PyTuple_GetItem(geometry, 0), *owner;
    int code = (int)PyLong_AsLong(PyTuple_GetItem(geometry, 2));
    int device = (int)PyLong_AsLong(PyTuple_GetItem(geometry, 4));
    if (PyErr_Occurred() || check_code(code) < 0) {
        return NULL;
    }
    size_t size = tw_code_bytes[code];
    for (Py_ssize_t axis = 0; axis < PyTuple_Size(shape); axis++) {
        size *= PyLong_AsSize_t(PyTuple_GetItem(shape, axis));
    }
    CUstream stream;
    if (PyErr_Occurred() || launch_stream(arguments[2], device, &stream, &owner) < 0) {
        return NULL;
    }
    Buffer *self = allocate((PyTypeObject *)arguments[0], size, code, device, owner, stream);
    if (self != NULL) {
        self->shape = Py_NewRef(shape);
        self->strides = Py_NewRef(PyTuple_GetItem(geometry, 1));
        self->geometry = Py_NewRef(geometry);
    }
    return (PyObject *)self;
}

Buffer *tw_new_borrowed(const Borrowed *from)
{
    Storage *storage = PyMem_Calloc(1, sizeof *storage);
    Buffer *self = storage == NULL ? NULL : (Buffer *)PyType_GenericAlloc(from->type, 0);
    if (self == NULL) {
        PyMem_Free(storage);
        PyErr_NoMemory();
        return NULL;
    }
    *storage = (Storage){.references = 1, .address = from->address, .device = from->device, .is_borrowed = 1,
                         .is_read_only = from->is_read_only, .stream = from->stream, .owner = Py_NewRef(from->owner)};
    if (from->source != NULL) {
        storage->has_source = 1;
        storage->source = *from->source;
    }
    self->storage = storage;
    self->address = from->address;
    self->size_bytes = from->size_bytes;
    self->code = (unsigned char)from->code;
    return self;
}

// borrow(type, address, size_bytes, code, device, stream, owner, read_only, is_torch): memory that `owner` keeps alive.
PyObject *tw_borrow(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    static const StreamSource torch = {.api = NULL, .is_torch = 1};
    PyObject *type, *stream_object;
    unsigned long long address;
    Py_ssize_t size;
    int is_torch;
    Borrowed from = {0};
    if (!PyArg_ParseTuple(arguments, "OKniiOOpp", &type, &address, &size, &from.code, &from.device, &stream_object,
                          &from.owner, &from.is_read_only, &is_torch) ||
        check_code(from.code) < 0 || tw_parse_stream(stream_object, &from.stream) < 0 || tw_device(from.device) == NULL ||
        tw_check_buffer_type(type) < 0) {
        return NULL;
    }
    if (size < 0) {
        return PyErr_Format(tw_argument_error, "a buffer cannot have %zd bytes", size);
    }
    from.type = (PyTypeObject *)type;
    from.address = address;
    from.size_bytes = (size_t)size;
    from.source = is_torch ? &torch : NULL;
    return (PyObject *)tw_new_borrowed(&from);
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
    CUstream stream;
    int pushed;
    if (device == NULL || tw_stream_of(buffer->storage, &stream) < 0 ||
        tw_refuse_in_capture(stream, "copying from the host") < 0 || tw_enter(device, &pushed) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    if (data.len > 0) {
        Py_BEGIN_ALLOW_THREADS
        result = cu.MemcpyHtoDAsync(buffer->address, data.buf, (size_t)data.len, stream);
        if (result == CUDA_SUCCESS) {
            result = cu.StreamSynchronize(stream);
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
    CUstream stream;
    int pushed;
    if (device == NULL || tw_stream_of(buffer->storage, &stream) < 0 ||
        tw_refuse_in_capture(stream, "copying to the host") < 0 || tw_enter(device, &pushed) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    if (data.len > 0) {
        Py_BEGIN_ALLOW_THREADS
        result = cu.MemcpyDtoHAsync(data.buf, buffer->address, (size_t)data.len, stream);
        if (result == CUDA_SUCCESS) {
            result = cu.StreamSynchronize(stream);
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
    CUstream first, stream;  // the source's, and the destination's, on which the copy goes
    int pushed, status = 0;
    if (device == NULL || tw_stream_of(origin, &first) < 0 || tw_stream_of(target, &stream) < 0 ||
        tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    if (source->size_bytes > 0) {
        // Inside a capture the order with streams outside it is the capturing program's own affair.
        int is_ordered = first != stream && !tw_is_capturing(stream) && !tw_is_capturing(first);
        if (is_ordered) {
            status = tw_order(device, first, stream);
        }
        if (status == 0) {
            status = tw_check(cu.MemcpyDtoDAsync(destination->address, source->address, source->size_bytes, stream),
                              "cuMemcpyDtoDAsync");
        }
        if (status == 0 && tw_is_recorded(stream)) {
            status = tw_record(from, 0) < 0 ? -1 : tw_record(to, 1);
        }
        // The source may be freed, and handed out again, on its own stream.
        if (status == 0 && is_ordered) {
            status = tw_order(device, stream, first);
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
    CUstream stream;
    int pushed;
    if (!PyArg_ParseTuple(arguments, "Ob", &object, &byte)) {
        return NULL;
    }
    Buffer *buffer = as_writable(object, 0);
    DeviceState *device = buffer == NULL ? NULL : tw_device(buffer->storage->device);
    if (device == NULL || tw_stream_of(buffer->storage, &stream) < 0 || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    CUresult result = CUDA_SUCCESS;
    if (buffer->size_bytes > 0) {
        result = cu.MemsetD8Async(buffer->address, byte, buffer->size_bytes, stream);
        buffer->storage->version++;
    }
    tw_leave(pushed);
    if (tw_check(result, "cuMemsetD8Async") < 0 ||
        (tw_is_recorded(stream) && tw_record(object, 1) < 0)) {
        return NULL;
    }
    Py_RETURN_NONE;
}
