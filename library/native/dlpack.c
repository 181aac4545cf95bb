// DLPack capsules, read and made. A launch only borrows one; `as_device_array` keeps one. And the door to the C
// exchange API of other libraries' arrays.
#include "launcher.h"

#include "dlpack.h"

const ExchangeApi *tw_exchange_api(PyObject *type)
{
    // The second name is what the first releases of the API used.
    static const char *const names[] = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"};
    const ExchangeHeader *header = NULL;
    for (int i = 0; i < 2 && header == NULL; i++) {
        PyObject *capsule = PyObject_GetAttrString(type, names[i]);
        // Before it was a capsule it was an integer, whose table no version guards.
        if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
            header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        }
        Py_XDECREF(capsule);
        PyErr_Clear();
    }
    while (header != NULL && header->major > 1) {
        header = header->previous;
    }
    const ExchangeApi *api = (const ExchangeApi *)header;
    return api != NULL && header->major == 1 && api->read != NULL && api->current_stream != NULL ? api : NULL;
}

int tw_dlpack_code(const DLTensor *tensor)
{
    static const signed char integers[] = {CODE_I8, CODE_I16, CODE_I32, CODE_I64};
    static const signed char unsigned_integers[] = {CODE_U8, CODE_U16, CODE_U32, CODE_U64};
    static const signed char floats[] = {-1, CODE_F16, CODE_F32, CODE_F64};
    int bits = tensor->dtype.bits;
    int size = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    if (tensor->dtype.lanes != 1 || bits != 8 << size) {
        return -1;
    }
    switch (tensor->dtype.code) {
    case DL_INT: return integers[size];
    case DL_UINT: return unsigned_integers[size];
    case DL_FLOAT: return floats[size];
    case DL_BFLOAT: return size == 1 ? CODE_BF16 : -1;
    case DL_BOOL: return size == 0 ? CODE_I1 : -1;
    case DL_E4M3FN: return size == 0 ? CODE_F8E4M3 : -1;
    case DL_E5M2: return size == 0 ? CODE_F8E5M2 : -1;
    default: return -1;
    }
}

PyObject *tw_extents(const int64_t *values, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

// dlpack_read(capsule) -> (address, shape, strides | None, code, device)
PyObject *tw_dlpack_read(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const DLTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    if (tensor == NULL) {
        return NULL;
    }
    int code = tw_dlpack_code(tensor);
    if (code < 0) {
        return PyErr_Format(tw_argument_error, "DLPack elements of code %d, %d bits and %d lanes are not taken by kernels",
                            tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes);
    }
    PyObject *shape = tw_extents(tensor->shape, tensor->ndim);
    PyObject *strides = tensor->strides == NULL ? Py_NewRef(Py_None) : tw_extents(tensor->strides, tensor->ndim);
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("(KNNii)", (unsigned long long)(uintptr_t)tensor->data + tensor->byte_offset, shape, strides,
                         code, tensor->device.id);
}

static void free_managed(DLManagedTensor *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->context);
    PyMem_Free(managed);
    PyGILState_Release(state);
}

// An importer renames the capsule to "used_dltensor" and frees the tensor itself.
static void free_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    }
}

static int read_extents(PyObject *tuple, int64_t *values, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

// dlpack_export(buffer, shape, strides) -> capsule that keeps the buffer alive
PyObject *tw_dlpack_export(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    static const unsigned char kinds[CODE_COUNT] = {DL_BOOL, DL_INT,  DL_INT,   DL_INT,    DL_INT,
                                                    DL_UINT, DL_UINT, DL_UINT,  DL_UINT,   DL_FLOAT,
                                                    DL_BFLOAT, DL_FLOAT, DL_FLOAT, DL_E4M3FN, DL_E5M2};
    PyObject *object, *shape, *strides;
    if (!PyArg_ParseTuple(arguments, "O!O!O!", tw_buffer_type, &object, &PyTuple_Type, &shape, &PyTuple_Type, &strides)) {
        return NULL;
    }
    Buffer *buffer = (Buffer *)object;
    Py_ssize_t rank = PyTuple_Size(shape);
    if (buffer->storage->freed || PyTuple_Size(strides) != rank) {
        PyErr_SetString(tw_argument_error, "this buffer was freed, or its shape and strides differ in length");
        return NULL;
    }
    DLManagedTensor *managed = PyMem_Calloc(1, sizeof *managed + (size_t)rank * 2 * sizeof(int64_t));
    if (managed == NULL) {
        return PyErr_NoMemory();
    }
    int64_t *values = (int64_t *)(managed + 1);
    managed->tensor = (DLTensor){
        .data = (void *)(uintptr_t)buffer->address,
        .device = {DL_CUDA, buffer->storage->device},
        .ndim = (int32_t)rank,
        .dtype = {kinds[buffer->code], (uint8_t)(tw_code_bytes[buffer->code] * 8), 1},
        .shape = values,
        .strides = values + rank,
    };
    managed->context = Py_NewRef(object);
    managed->deleter = free_managed;
    if (read_extents(shape, values, rank) < 0 || read_extents(strides, values + rank, rank) < 0) {
        free_managed(managed);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(managed, "dltensor", free_capsule);
    if (capsule == NULL) {
        free_managed(managed);
    }
    return capsule;
}
