// Arrays of other libraries as our buffers, and the arguments of an operation as arrays with their geometries.
//
// An array is read through DLPack's C exchange API, which makes no Python object, and from then on it belongs to the
// stream that its library works on: asked for when something is launched on it, as for a launch with the array itself.
// What cannot be read so is for Python: an older library, an array on the host, or one that must be refused with words.
#include "launcher.h"

#include "dlpack.h"

static PyObject *name_requires_grad, *name_is_neg;

int tw_operands_ready(void)
{
    name_requires_grad = PyUnicode_InternFromString("requires_grad");
    name_is_neg = PyUnicode_InternFromString("is_neg");
    return name_requires_grad == NULL || name_is_neg == NULL ? -1 : 0;
}

// Whether an operation that knows nothing of torch may read a tensor: no gradient asks to be told of it, and memory
// holds the values, not their negatives. (A conjugate is complex, which no kernel takes.) -1 with an error.
static int is_plain_tensor(PyObject *value)
{
    PyObject *answer = PyObject_GetAttr(value, name_requires_grad);
    int refused = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (refused == 0) {
        answer = PyObject_CallMethodObjArgs(value, name_is_neg, NULL);
        refused = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    return refused < 0 ? -1 : !refused;
}

// The bytes from the first element to the last; -1 for an array that is no buffer of ours.
static int64_t spanned_bytes(const DLTensor *tensor, int code)
{
    int64_t last = 0;
    for (int axis = 0; axis < tensor->ndim; axis++) {
        int64_t extent = tensor->shape[axis], stride = tensor->strides == NULL ? 0 : tensor->strides[axis];
        if (extent < 0 || stride < 0) {
            return -1;
        }
        if (extent == 0) {
            return 0;
        }
        last += (extent - 1) * stride;
    }
    return (last + 1) * tw_code_bytes[code];
}

// A new reference; None where the value is not read so, NULL with an error.
static PyObject *borrow_array(PyTypeObject *type, PyObject *value)
{
    const ExchangeApi *api;
    StreamSource source;
    DLTensor tensor;
    if (tw_exchange_of(value, &api, &source) < 0) {
        return NULL;
    }
    if (api == NULL) {
        Py_RETURN_NONE;
    }
    if (api->read(value, &tensor) != 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    int code = tw_dlpack_code(&tensor);
    int is_on_device = tensor.device.type == DL_CUDA || tensor.device.type == DL_CUDA_MANAGED;
    int64_t size = code < 0 || !is_on_device || (tensor.strides == NULL && tensor.ndim > 0) ? -1
                                                                                            : spanned_bytes(&tensor, code);
    if (size < 0) {
        Py_RETURN_NONE;
    }
    // The attributes may run Python, after which the tensor's extents need not be there.
    PyObject *shape = tw_extents(tensor.shape, tensor.ndim), *strides = tw_extents(tensor.strides, tensor.ndim);
    int is_plain = shape == NULL || strides == NULL ? -1 : source.is_torch ? is_plain_tensor(value) : 1;
    Buffer *buffer = NULL;
    if (is_plain == 1 && tw_device(tensor.device.id) != NULL) {
        buffer = tw_new_borrowed(&(Borrowed){.type = type,
                                             .address = (CUdeviceptr)(uintptr_t)tensor.data + tensor.byte_offset,
                                             .size_bytes = (size_t)size,
                                             .code = code,
                                             .device = tensor.device.id,
                                             .source = &source,
                                             .owner = value});
    }
    if (buffer != NULL) {
        buffer->shape = shape;
        buffer->strides = strides;
        return (PyObject *)buffer;
    }
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    if (is_plain == 0) {
        Py_RETURN_NONE;
    }
    return NULL;
}

// borrow_array(type, value) -> a buffer over another library's array, or None where Python has to look at it
PyObject *tw_borrow_array(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "borrow_array() takes a type and a value");
    }
    return tw_check_buffer_type(arguments[0]) < 0 ? NULL : borrow_array((PyTypeObject *)arguments[0], arguments[1]);
}

// One operand: steals nothing, gives new references. `convert(value, name)` gives (array, geometry) of what is no
// device array to be read here.
static int operand(PyTypeObject *type, PyObject *convert, PyObject *name, PyObject *value, PyObject **array,
                   PyObject **geometry)
{
    *array = *geometry = NULL;
    if (value == Py_None) {
        *array = Py_NewRef(Py_None);
        *geometry = Py_NewRef(Py_None);
        return 0;
    }
    *array = PyObject_TypeCheck(value, type) ? Py_NewRef(value) : borrow_array(type, value);
    if (*array == NULL) {
        return -1;
    }
    if (*array != Py_None) {
        *geometry = tw_geometry((Buffer *)*array);
        return *geometry == NULL ? -1 : 0;
    }
    Py_CLEAR(*array);
    PyObject *pair = PyObject_CallFunctionObjArgs(convert, value, name, NULL);
    PyObject *converted, *its_geometry;
    int status = pair != NULL && PyArg_ParseTuple(pair, "OO", &converted, &its_geometry) ? 0 : -1;
    if (status == 0) {
        *array = Py_NewRef(converted);
        *geometry = Py_NewRef(its_geometry);
    }
    Py_XDECREF(pair);
    return status;
}

// operands(type, convert, **values) -> (list of arrays, tuple of their geometries), both with None for None
PyObject *tw_operands(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    if (count != 2 || tw_check_buffer_type(arguments[0]) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "operands() takes a type, a function and keywords");
    }
    Py_ssize_t given = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *arrays = PyList_New(given), *geometries = PyTuple_New(given);
    int status = arrays == NULL || geometries == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < given; i++) {
        PyObject *array, *geometry;
        status = operand((PyTypeObject *)arguments[0], arguments[1], PyTuple_GetItem(names, i), arguments[2 + i], &array,
                         &geometry);
        if (status == 0) {
            status = PyList_SetItem(arrays, i, array) < 0 || PyTuple_SetItem(geometries, i, geometry) < 0 ? -1 : 0;
        } else {
            Py_XDECREF(array);
            Py_XDECREF(geometry);
        }
    }
    PyObject *pair = status == 0 ? PyTuple_Pack(2, arrays, geometries) : NULL;
    Py_XDECREF(arrays);
    Py_XDECREF(geometries);
    return pair;
}

// Whether two buffers have every element of one index at one address. -1 with an error.
static int is_same_place(const Buffer *left, const Buffer *right)
{
    if (left->address != right->address || tw_code_bytes[left->code] != tw_code_bytes[right->code] ||
        left->shape == NULL || right->shape == NULL) {
        return 0;
    }
    int is_equal = PyObject_RichCompareBool(left->shape, right->shape, Py_EQ);
    return is_equal == 1 ? PyObject_RichCompareBool(left->strides, right->strides, Py_EQ) : is_equal;
}

// must_be_apart(ask, arrays, place, same) -> whether the array in that place spans memory of another one, unless that
// one's bit of `same` is set and both are one array. `ask` has the same parameters, and is called for no buffer of ours.
PyObject *tw_must_be_apart(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4 || !PyList_Check(arguments[1])) {
        return PyErr_Format(PyExc_TypeError, "must_be_apart() takes a function, a list and two numbers");
    }
    PyObject *arrays = arguments[1];
    Py_ssize_t place = PyLong_AsSsize_t(arguments[2]);
    unsigned long same = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(arguments[3]);
    PyObject *value = PyErr_Occurred() ? NULL : PyList_GetItem(arrays, place);
    if (value == NULL) {
        return NULL;
    }
    if (!PyObject_TypeCheck(value, tw_buffer_type)) {
        return PyObject_CallFunctionObjArgs(arguments[0], arrays, arguments[2], arguments[3], NULL);
    }
    const Buffer *result = (const Buffer *)value;
    int is_over = 0;
    for (Py_ssize_t i = 0; is_over == 0 && i < PyList_Size(arrays); i++) {
        const Buffer *other = (const Buffer *)PyList_GetItem(arrays, i);
        // Each begins before the other ends; what is empty has no place.
        if (i == place || !PyObject_TypeCheck((PyObject *)other, tw_buffer_type) || other->size_bytes == 0 ||
            other->address >= result->address + result->size_bytes ||
            result->address >= other->address + other->size_bytes) {
            continue;
        }
        int is_same = i < 32 && (same >> i & 1) ? is_same_place(result, other) : 0;
        is_over = is_same < 0 ? -1 : !is_same;
    }
    return is_over < 0 ? NULL : PyBool_FromLong(is_over);
}
