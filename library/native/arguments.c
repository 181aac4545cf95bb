// Turns Python launch arguments into slots: an address or the bits of a scalar, with its dtype.
//
// What kind of object an argument is depends on its type alone, so each type is classified once (by Python,
// which may ask NumPy and a loaded torch) and remembered here. A type with DLPack's C exchange API, as torch's
// since 2.10, is read through it; where that gives no array that a kernel takes, the type's older way says why.
#include "launcher.h"

#include "dlpack.h"

const char *const tw_code_names[CODE_COUNT] = {"i1",  "i8",  "i16",  "i32", "i64", "u8",     "u16",   "u32",
                                               "u64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"};
const unsigned char tw_code_bytes[CODE_COUNT] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1};

// Numbers shared with runtime/arguments.py.
enum {
    KIND_OTHER = 0,
    KIND_HOST_ARRAY = 1,
    KIND_TORCH = 2,
    KIND_CUDA_ARRAY = 3,
    KIND_DLPACK = 4,
    KIND_SCALAR = 5,
    KIND_BUFFER = 6,
    KIND_CONSTEXPR = 7,
};

enum { TYPE_SLOTS = 256 };

typedef struct {
    PyObject *type;
    int kind, code;
    const ExchangeApi *api;
} TypeEntry;

static TypeEntry types[TYPE_SLOTS];
static PyObject *classifier = NULL;     // (type) -> (kind, code)
static PyObject *array_codes = NULL;    // typestr -> code
static PyObject *torch_codes = NULL;    // torch.dtype -> code, filled as they are met
static PyObject *torch_dtype = NULL;    // (torch.dtype) -> code, or -1
static PyObject *torch_stream = NULL;   // (device) -> handle

static PyObject *name_data_ptr, *name_dtype, *name_get_device, *name_interface, *name_dlpack,
    *name_dlpack_device, *name_cuda_stream, *name_torch_stream, *name_value, *key_data, *key_typestr, *key_stream,
    *key_mask, *empty_tuple;

int tw_arguments_ready(void)
{
#define TW_NAME(variable, text) \
    variable = PyUnicode_InternFromString(text); \
    if (variable == NULL) { \
        return -1; \
    }
    TW_NAME(name_data_ptr, "data_ptr")
    TW_NAME(name_dtype, "dtype")
    TW_NAME(name_get_device, "get_device")
    TW_NAME(name_interface, "__cuda_array_interface__")
    TW_NAME(name_dlpack, "__dlpack__")
    TW_NAME(name_dlpack_device, "__dlpack_device__")
    TW_NAME(name_cuda_stream, "__cuda_stream__")
    TW_NAME(name_torch_stream, "cuda_stream")
    TW_NAME(name_value, "value")
    TW_NAME(key_data, "data")
    TW_NAME(key_typestr, "typestr")
    TW_NAME(key_stream, "stream")
    TW_NAME(key_mask, "mask")
#undef TW_NAME
    torch_codes = PyDict_New();
    empty_tuple = PyTuple_New(0);
    return torch_codes == NULL || empty_tuple == NULL ? -1 : 0;
}

static void replace(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    *place = Py_NewRef(value);
    Py_XDECREF(old);
}

PyObject *tw_set_classifier(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *classify, *codes, *dtype, *stream;
    if (!PyArg_ParseTuple(arguments, "OO!OO", &classify, &PyDict_Type, &codes, &dtype, &stream)) {
        return NULL;
    }
    replace(&classifier, classify);
    replace(&array_codes, codes);
    replace(&torch_dtype, dtype);
    replace(&torch_stream, stream);
    for (int i = 0; i < TYPE_SLOTS; i++) {
        Py_CLEAR(types[i].type);
    }
    Py_RETURN_NONE;
}

TW_COLD static int ask_classifier(TypeEntry *entry, PyObject *value, PyObject *type)
{
    TypeEntry found = {.kind = KIND_BUFFER};
    if (!PyObject_TypeCheck(value, tw_buffer_type)) {
        if (classifier == NULL) {
            PyErr_SetString(PyExc_RuntimeError, "set_classifier() was not called");
            return -1;
        }
        PyObject *answer = PyObject_CallFunctionObjArgs(classifier, type, NULL);
        int parsed = answer == NULL ? 0 : PyArg_ParseTuple(answer, "ii", &found.kind, &found.code);
        Py_XDECREF(answer);
        if (!parsed) {
            return -1;
        }
        if (found.kind == KIND_TORCH || found.kind == KIND_CUDA_ARRAY || found.kind == KIND_DLPACK ||
            found.kind == KIND_OTHER) {
            found.api = tw_exchange_api(type);
        }
    }
    // The type is held, so its address cannot come to mean another type.
    replace(&entry->type, type);
    entry->kind = found.kind;
    entry->code = found.code;
    entry->api = found.api;
    return 0;
}

static inline TypeEntry *place_of(PyObject *type)
{
    return &types[((uintptr_t)type >> 5) % TYPE_SLOTS];
}

// The entry of a value's type, valid until Python code runs; NULL with an error.
static inline const TypeEntry *type_entry(PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    TypeEntry *entry = place_of(type);
    return entry->type == type || ask_classifier(entry, value, type) == 0 ? entry : NULL;
}

TW_COLD static int bad_argument(const Call *call, int index, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    PyObject *text = PyUnicode_FromFormatV(format, list);
    va_end(list);
    if (text != NULL) {
        PyErr_Format(tw_argument_error, "%U: argument %R %U", call->kernel,
                     PyTuple_GetItem(call->names, index), text);
        Py_DECREF(text);
    }
    return -1;
}

static uint16_t round_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// From double to binary16, to nearest even. A NumPy float16 arrives as an exact double, so rounding only
// matters for other callers.
static uint16_t round_to_f16(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000u);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction = bits & 0xfffffffffffffULL;
    if (exponent == 1024) {
        return (uint16_t)(sign | 0x7c00u | (fraction ? 0x200u | (unsigned)(fraction >> 42) : 0));
    }
    if (exponent < -25) {
        return sign;
    }
    uint64_t significand = fraction | (exponent == -1023 ? 0 : 1ULL << 52);
    int shift = exponent < -14 ? 42 + (-14 - exponent) : 42;
    uint64_t rounded = significand >> shift;
    uint64_t rest = significand & ((1ULL << shift) - 1), half = 1ULL << (shift - 1);
    rounded += rest > half || (rest == half && (rounded & 1));
    // A normal's significand carries its hidden bit into the exponent field, hence the bias of 14.
    uint64_t result = exponent < -14 ? rounded : rounded + ((uint64_t)(exponent + 14) << 10);
    return (uint16_t)(sign | (result >= 0x7c00u ? 0x7c00u : result));
}

static void pack_float(Slot *slot, double value)
{
    slot->bits = 0;
    slot->is_exact = 0;
    if (slot->code == CODE_F64) {
        memcpy(&slot->bits, &value, sizeof value);
    } else if (slot->code == CODE_F32) {
        float single = (float)value;
        memcpy(&slot->bits, &single, sizeof single);
    } else if (slot->code == CODE_BF16) {
        slot->bits = round_to_bf16((float)value);
    } else {
        slot->bits = round_to_f16(value);
    }
}

static int pack_integer(Call *call, int index, PyObject *value)
{
    Slot *slot = &call->slots[index];
    int overflow = 0;
    long long integer = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (integer == -1 && overflow == 0 && PyErr_Occurred()) {
        return -1;
    }
    if (overflow != 0) {
        if (slot->code == CODE_U64 && overflow > 0) {
            slot->bits = PyLong_AsUnsignedLongLong(value);
            slot->is_exact = 0;
            return PyErr_Occurred() ? -1 : 0;
        }
        return bad_argument(call, index, "is %S, which does not fit in %s; pass numpy.uint64 for values up to "
                            "2**64 - 1", value, tw_code_names[slot->code]);
    }
    slot->bits = (uint64_t)integer;
    slot->integer = integer;
    slot->is_exact = 1;
    return 0;
}

static int classify_scalar(Call *call, int index, PyObject *value, int code)
{
    Slot *slot = &call->slots[index];
    slot->kind = SLOT_SCALAR;
    slot->code = (unsigned char)code;
    if (code >= CODE_F16) {
        double number = PyFloat_AsDouble(value);
        if (number == -1.0 && PyErr_Occurred()) {
            return -1;
        }
        pack_float(slot, number);
        return 0;
    }
    if (code == CODE_I1) {
        int truth = PyObject_IsTrue(value);
        slot->bits = (uint64_t)(truth > 0);
        slot->integer = truth;
        slot->is_exact = 1;
        return truth < 0 ? -1 : 0;
    }
    PyObject *integer = PyNumber_Index(value);
    if (integer == NULL) {
        return -1;
    }
    int status = pack_integer(call, index, integer);
    Py_DECREF(integer);
    return status;
}

static int on_device(Call *call, int index, int device)
{
    if (call->device < 0) {
        call->device = device;
        call->device_from = index;
    } else if (call->device != device) {
        return bad_argument(call, index, "is on device %d, but %R is on device %d; all arguments of a launch must "
                            "be on one device", device, PyTuple_GetItem(call->names, call->device_from),
                            call->device);
    }
    return 0;
}

static void pointer_slot(Call *call, int index, CUdeviceptr address, int code)
{
    Slot *slot = &call->slots[index];
    slot->kind = SLOT_POINTER;
    slot->code = (unsigned char)code;
    slot->bits = address;
    slot->integer = (int64_t)address;
    slot->is_exact = 1;
}

static int foreign_stream(Call *call, int index, CUstream stream)
{
    for (int i = 0; i < call->foreign_count; i++) {
        if (call->foreign[i] == stream) {
            return 0;
        }
    }
    if (call->foreign_count == MAX_FOREIGN_STREAMS) {
        return bad_argument(call, index, "brings a %dth stream into one launch", MAX_FOREIGN_STREAMS + 1);
    }
    call->foreign[call->foreign_count++] = stream;
    return 0;
}

// The launch goes to a library's current stream or waits for it. Torch's comes first.
static int stream_source(Call *call, int index, const StreamSource *source)
{
    for (int i = 0; i < call->source_count; i++) {
        if (call->sources[i].api == source->api) {
            return 0;
        }
    }
    if (call->source_count == MAX_STREAM_SOURCES) {
        return bad_argument(call, index, "is of a %dth library in one launch", MAX_STREAM_SOURCES + 1);
    }
    int place = source->is_torch ? 0 : call->source_count;
    memmove(&call->sources[place + 1], &call->sources[place],
            (size_t)(call->source_count - place) * sizeof call->sources[0]);
    call->sources[place] = *source;
    call->source_count++;
    return 0;
}

// The table that one of another library's arrays is read by, and who tells its stream. Torch does so by another way
// where the table is not its own; without a table `api` is NULL.
static void exchange_of(const TypeEntry *entry, const ExchangeApi **api, StreamSource *source)
{
    *api = entry->api;
    source->is_torch = entry->kind == KIND_TORCH;
    source->api = source->is_torch && entry->code == 0 ? NULL : entry->api;
}

int tw_exchange_of(PyObject *value, const ExchangeApi **api, StreamSource *source)
{
    const TypeEntry *entry = type_entry(value);
    if (entry != NULL) {
        exchange_of(entry, api, source);
    }
    return entry == NULL ? -1 : 0;
}

enum { NOT_READ = 1 };

static int classify_by_exchange(Call *call, int index, PyObject *value, const TypeEntry *entry)
{
    const ExchangeApi *api;
    StreamSource source;
    exchange_of(entry, &api, &source);
    DLTensor tensor;
    if (api->read(value, &tensor) != 0) {
        PyErr_Clear();
        return NOT_READ;
    }
    int code = tw_dlpack_code(&tensor);
    if (code < 0 || (tensor.device.type != DL_CUDA && tensor.device.type != DL_CUDA_MANAGED)) {
        return NOT_READ;
    }
    pointer_slot(call, index, (CUdeviceptr)(uintptr_t)tensor.data + tensor.byte_offset, code);
    return stream_source(call, index, &source) < 0 ? -1 : on_device(call, index, tensor.device.id);
}

static int classify_torch(Call *call, int index, PyObject *value)
{
    PyObject *dtype = PyObject_GetAttr(value, name_dtype);
    if (dtype == NULL) {
        return -1;
    }
    PyObject *known = PyDict_GetItemWithError(torch_codes, dtype);
    if (known == NULL && !PyErr_Occurred()) {
        PyObject *answer = PyObject_CallFunctionObjArgs(torch_dtype, dtype, NULL);
        if (answer != NULL && PyDict_SetItem(torch_codes, dtype, answer) == 0) {
            known = PyDict_GetItemWithError(torch_codes, dtype);
        }
        Py_XDECREF(answer);
    }
    long code = known == NULL ? -1 : PyLong_AsLong(known);
    if (code < 0) {
        if (!PyErr_Occurred()) {
            bad_argument(call, index, "is a torch tensor of %S, which kernels do not take", dtype);
        }
        Py_DECREF(dtype);
        return -1;
    }
    Py_DECREF(dtype);
    PyObject *answer = PyObject_CallMethodObjArgs(value, name_get_device, NULL);
    long device = answer == NULL ? -1 : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (device < 0) {
        return bad_argument(call, index, "is a torch tensor that is not on a CUDA device; move it with .cuda(), or "
                            "pass tensor.numpy() to run in the interpreter");
    }
    answer = PyObject_CallMethodObjArgs(value, name_data_ptr, NULL);
    if (answer == NULL) {
        return -1;
    }
    CUdeviceptr address = PyLong_AsUnsignedLongLong(answer);
    Py_DECREF(answer);
    if (address == (CUdeviceptr)-1 && PyErr_Occurred()) {
        return -1;
    }
    pointer_slot(call, index, address, (int)code);
    static const StreamSource torch = {.api = NULL, .is_torch = 1};
    return stream_source(call, index, &torch) < 0 ? -1 : on_device(call, index, (int)device);
}

static int device_of_address(Call *call, int index, CUdeviceptr address)
{
    int device = 0;
    if (tw_open_driver() < 0) {
        return -1;
    }
    CUresult result = cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    if (result != CUDA_SUCCESS) {
        return bad_argument(call, index, "has the address %p, which is not memory of a CUDA device (driver error %d)",
                            (void *)(uintptr_t)address, result);
    }
    return on_device(call, index, device);
}

static int classify_cuda_array(Call *call, int index, PyObject *value)
{
    PyObject *interface = PyObject_GetAttr(value, name_interface);
    if (interface == NULL) {
        return -1;
    }
    int status = -1, read_only = 0;
    unsigned long long address = 0;
    PyObject *data, *typestr, *mask, *stream;
    if (!PyDict_Check(interface)) {
        bad_argument(call, index, "has a __cuda_array_interface__ that is no dict");
        goto done;
    }
    data = PyDict_GetItemWithError(interface, key_data);
    typestr = PyDict_GetItemWithError(interface, key_typestr);
    mask = PyDict_GetItemWithError(interface, key_mask);
    stream = PyDict_GetItemWithError(interface, key_stream);
    if (PyErr_Occurred()) {
        goto done;
    }
    if (mask != NULL && mask != Py_None) {
        bad_argument(call, index, "is a masked array; kernels take no masks from __cuda_array_interface__");
        goto done;
    }
    if (data == NULL || !PyTuple_Check(data) || !PyArg_ParseTuple(data, "Kp", &address, &read_only)) {
        PyErr_Clear();
        bad_argument(call, index, "has a __cuda_array_interface__ without a valid 'data' pair");
        goto done;
    }
    PyObject *code = typestr == NULL ? NULL : PyDict_GetItemWithError(array_codes, typestr);
    if (code == NULL) {
        if (!PyErr_Occurred()) {
            bad_argument(call, index, "has elements of type %R, which kernels do not take",
                         typestr == NULL ? Py_None : typestr);
        }
        goto done;
    }
    pointer_slot(call, index, address, (int)PyLong_AsLong(code));
    call->slots[index].read_only = (unsigned char)read_only;
    if (address != 0 && device_of_address(call, index, address) < 0) {
        goto done;
    }
    if (stream != NULL && stream != Py_None) {
        unsigned long long handle = PyLong_Check(stream) ? PyLong_AsUnsignedLongLong(stream) : 0;
        if (handle == 0 || PyErr_Occurred()) {
            PyErr_Clear();
            bad_argument(call, index, "names the stream %R, which __cuda_array_interface__ does not allow", stream);
            goto done;
        }
        // 1 is the legacy stream, which we write as 0.
        if (foreign_stream(call, index, handle == 1 ? NULL : (CUstream)(uintptr_t)handle) < 0) {
            goto done;
        }
    }
    status = 0;
done:
    Py_DECREF(interface);
    return status;
}

static int dlpack_device(PyObject *value, int *type, int *device)
{
    PyObject *pair = PyObject_CallMethodObjArgs(value, name_dlpack_device, NULL);
    int parsed = pair != NULL && PyTuple_Check(pair);
    if (parsed) {
        PyObject *first = PyTuple_GetItem(pair, 0), *second = first ? PyTuple_GetItem(pair, 1) : NULL;
        // The first is an IntEnum with many exporters, so it goes through __index__.
        *type = second ? (int)PyNumber_AsSsize_t(first, NULL) : 0;
        *device = second ? (int)PyNumber_AsSsize_t(second, NULL) : 0;
        parsed = !PyErr_Occurred();
    }
    Py_XDECREF(pair);
    if (!parsed && !PyErr_Occurred()) {
        PyErr_SetString(tw_argument_error, "__dlpack_device__() gave no (type, id) pair");
    }
    return parsed ? 0 : -1;
}

static int classify_dlpack(Call *call, int index, PyObject *value)
{
    int type, device;
    if (dlpack_device(value, &type, &device) < 0) {
        return -1;
    }
    if (type == DL_CPU) {
        if (call->host_from < 0) {
            call->host_from = index;
        }
        return 0;
    }
    if (type != DL_CUDA && type != DL_CUDA_MANAGED) {
        return bad_argument(call, index, "is on a device of DLPack type %d; kernels run on CUDA devices (type 2)",
                            type);
    }
    // The memory itself is asked for in tw_finish_arguments, when the stream of the launch is known.
    pointer_slot(call, index, 0, CODE_U8);
    call->slots[index].kind = 0;
    call->has_dlpack = 1;
    return on_device(call, index, device);
}

static int borrow_dlpack(Call *call, int index)
{
    PyObject *value = call->slots[index].value;
    PyObject *exporter = PyObject_GetAttr(value, name_dlpack);
    // -1 asks for no ordering: a captured stream cannot wait for one outside the capture.
    long long handle = tw_is_capturing(call->stream) ? -1 : call->stream == NULL ? 1 : (long long)(intptr_t)call->stream;
    PyObject *keywords = exporter == NULL ? NULL : Py_BuildValue("{s:L}", "stream", handle);
    PyObject *capsule = keywords == NULL ? NULL : PyObject_Call(exporter, empty_tuple, keywords);
    Py_XDECREF(exporter);
    Py_XDECREF(keywords);
    if (capsule == NULL) {
        return -1;
    }
    // Not renamed to "used_dltensor": this is a borrow, so the capsule's own destructor frees it.
    DLTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    if (tensor == NULL) {
        Py_DECREF(capsule);
        return -1;
    }
    int code = tw_dlpack_code(tensor);
    call->held[call->held_count++] = capsule;
    if (code < 0) {
        return bad_argument(call, index, "has DLPack elements (code %d, %d bits, %d lanes), which kernels do not take",
                            tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes);
    }
    pointer_slot(call, index, (CUdeviceptr)(uintptr_t)tensor->data + tensor->byte_offset, code);
    return 0;
}

static int classify_buffer(Call *call, int index, Buffer *buffer)
{
    const Storage *storage = buffer->storage;
    if (storage == NULL || storage->freed) {
        return bad_argument(call, index, "is a buffer that was freed");
    }
    pointer_slot(call, index, buffer->address, buffer->code);
    Slot *slot = &call->slots[index];
    slot->buffer = buffer;
    slot->read_only = (unsigned char)storage->is_read_only;
    // Waiting for the legacy stream is only needed by a launch elsewhere: settled when that is known.
    if ((storage->has_source ? stream_source(call, index, &storage->source)
                             : foreign_stream(call, index, storage->stream)) < 0) {
        return -1;
    }
    return on_device(call, index, storage->device);
}

int tw_classify(Call *call, int index, PyObject *value)
{
    Slot *slot = &call->slots[index];
    slot->value = value;
    slot->buffer = NULL;
    slot->read_only = 0;
    if (PyLong_CheckExact(value)) {
        slot->kind = SLOT_SCALAR;
        slot->code = CODE_I64;
        return pack_integer(call, index, value);
    }
    const TypeEntry *known = place_of((PyObject *)Py_TYPE(value));
    if (known->type == (PyObject *)Py_TYPE(value) && known->kind == KIND_BUFFER) {
        return classify_buffer(call, index, (Buffer *)value);
    }
    if (PyFloat_CheckExact(value)) {
        slot->kind = SLOT_SCALAR;
        slot->code = CODE_F32;
        pack_float(slot, PyFloat_AsDouble(value));
        return 0;
    }
    if (PyBool_Check(value)) {
        return classify_scalar(call, index, value, CODE_I1);
    }
    const TypeEntry *entry = type_entry(value);
    if (entry == NULL) {
        return -1;
    }
    int code = entry->code, kind = entry->kind;
    if (entry->api != NULL) {
        int status = classify_by_exchange(call, index, value, entry);
        if (status != NOT_READ) {
            return status;
        }
    }
    switch (kind) {
    case KIND_BUFFER:
        return classify_buffer(call, index, (Buffer *)value);
    case KIND_TORCH:
        return classify_torch(call, index, value);
    case KIND_CUDA_ARRAY:
        return classify_cuda_array(call, index, value);
    case KIND_DLPACK:
        return classify_dlpack(call, index, value);
    case KIND_SCALAR:
        return classify_scalar(call, index, value, code);
    case KIND_HOST_ARRAY:
        slot->kind = 0;
        if (call->host_from < 0) {
            call->host_from = index;
        }
        return 0;
    default:
        if (value == Py_None) {
            return bad_argument(call, index, "is None, which only a parameter annotated tl.constexpr takes; pass "
                                "a number or an array, and a flag that says whether it counts");
        }
        return bad_argument(call, index, "is of %R; kernels take device arrays (Tilewright's, torch's, "
                            "__cuda_array_interface__, DLPack), NumPy arrays (interpreter), int, float, bool "
                            "and NumPy scalars", (PyObject *)Py_TYPE(value));
    }
}

static int is_plain(PyObject *value)
{
    return value == Py_None || PyLong_CheckExact(value) || PyBool_Check(value) || PyFloat_CheckExact(value) ||
           PyUnicode_CheckExact(value);
}

// A constexpr becomes a plain int, bool, float, str or None, so that the cache can compare it without running
// Python. What stays (a dtype, or something Python will refuse) is compared by identity.
int tw_classify_constexpr(Call *call, int index, PyObject *value)
{
    call->slots[index] = (Slot){.kind = SLOT_CONSTEXPR, .value = value};
    if (is_plain(value)) {
        return 0;
    }
    const TypeEntry *entry = type_entry(value);
    if (entry == NULL) {
        return -1;
    }
    PyObject *plain;
    if (entry->kind == KIND_CONSTEXPR) {
        plain = PyObject_GetAttr(value, name_value);
    } else if (entry->kind != KIND_SCALAR) {
        return 0;
    } else if (entry->code == CODE_I1) {
        int truth = PyObject_IsTrue(value);
        plain = truth < 0 ? NULL : PyBool_FromLong(truth);
    } else {
        plain = entry->code >= CODE_F16 ? PyNumber_Float(value) : PyNumber_Index(value);
    }
    if (plain == NULL) {
        return -1;
    }
    call->held[call->held_count++] = plain;
    call->slots[index].value = plain;
    return 0;
}

int tw_current_stream(const StreamSource *source, int device, CUstream *stream)
{
    if (source->api != NULL) {
        void *handle = NULL;
        if (source->api->current_stream(DL_CUDA, device, &handle) != 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(tw_argument_error, "the library of an argument did not tell its current stream");
            }
            return -1;
        }
        // 1 is the legacy stream by its other name.
        *stream = (uintptr_t)handle == 1 ? NULL : (CUstream)handle;
        return 0;
    }
    PyObject *index = PyLong_FromLong(device);
    PyObject *answer = index == NULL ? NULL : PyObject_CallFunctionObjArgs(torch_stream, index, NULL);
    Py_XDECREF(index);
    int status = answer == NULL ? -1 : tw_parse_stream(answer, stream);
    Py_XDECREF(answer);
    return status;
}

int tw_finish_arguments(Call *call)
{
    for (int i = 0; i < call->source_count; i++) {
        CUstream current = NULL;
        if (tw_current_stream(&call->sources[i], call->device, &current) < 0) {
            return -1;
        }
        if (i == 0 && !call->has_stream) {
            call->stream = current;
        } else if (foreign_stream(call, 0, current) < 0) {
            return -1;
        }
    }
    for (int i = 0; call->has_dlpack && i < call->count; i++) {
        if (call->slots[i].kind == 0 && borrow_dlpack(call, i) < 0) {
            return -1;
        }
    }
    return 0;
}

// A stream is None or 0 (legacy), a handle, an object with __cuda_stream__(), or one of torch's.
int tw_parse_stream(PyObject *object, CUstream *stream)
{
    if (object == Py_None) {
        *stream = NULL;
        return 0;
    }
    PyObject *number = NULL;
    if (PyLong_Check(object)) {
        number = Py_NewRef(object);
    } else if (PyObject_HasAttr(object, name_cuda_stream)) {
        PyObject *pair = PyObject_CallMethodObjArgs(object, name_cuda_stream, NULL);
        if (pair == NULL) {
            return -1;  // the object's own word: that it is closed, say
        }
        number = PyTuple_Check(pair) && PyTuple_Size(pair) == 2
                     ? Py_NewRef(PyTuple_GetItem(pair, 1))
                     : NULL;
        Py_DECREF(pair);
    } else if (PyObject_HasAttr(object, name_torch_stream)) {
        number = PyObject_GetAttr(object, name_torch_stream);
    }
    unsigned long long handle = number != NULL && PyLong_Check(number) ? PyLong_AsUnsignedLongLong(number) : 0;
    int failed = number == NULL || PyErr_Occurred();
    Py_XDECREF(number);
    if (failed) {
        PyErr_Clear();
        PyErr_Format(tw_argument_error, "%R is not a stream; give None (legacy), a handle or an object with "
                     "__cuda_stream__()", object);
        return -1;
    }
    *stream = handle == 1 ? NULL : (CUstream)(uintptr_t)handle;
    return 0;
}

// device_of(address) -> ordinal of the device that the memory belongs to
PyObject *tw_device_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    unsigned long long address;
    int device = 0;
    if (!PyArg_ParseTuple(arguments, "K", &address) || tw_open_driver() < 0) {
        return NULL;
    }
    CUresult result = cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    if (result != CUDA_SUCCESS) {
        return PyErr_Format(tw_argument_error, "%p is not memory of a CUDA device (driver error %d)",
                            (void *)(uintptr_t)address, result);
    }
    return PyLong_FromLong(device);
}

// scalar_bits(value, code): the bits that a scalar packs to; tests compare them with NumPy's.
PyObject *tw_scalar_bits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    double value;
    int code;
    Slot slot = {0};
    if (!PyArg_ParseTuple(arguments, "di", &value, &code)) {
        return NULL;
    }
    if (code < CODE_F16 || code > CODE_F64) {
        return PyErr_Format(tw_argument_error, "%d is no dtype code of a floating scalar", code);
    }
    slot.code = (unsigned char)code;
    pack_float(&slot, value);
    return PyLong_FromUnsignedLongLong(slot.bits);
}
