// The extension module `tilewright.runtime._launcher`: its functions and its start.
//
// Importing it touches nothing: libcuda is opened by the first call that needs it.
#include "launcher.h"

static PyMethodDef functions[] = {
    {"driver_version", tw_driver_version, METH_NOARGS, "Open the driver; return its CUDA version, such as 12080."},
    {"device_count", tw_device_count, METH_NOARGS, "Return the number of devices."},
    {"device_attribute", tw_device_attribute, METH_VARARGS, "device_attribute(device, CUdevice_attribute) -> int"},
    {"device_total_memory", tw_device_total_memory, METH_VARARGS, "device_total_memory(device) -> bytes"},
    {"after_fork", tw_after_fork, METH_NOARGS, "Tell the launcher that it runs in a forked child."},
    {"is_capturing", tw_capture_status, METH_VARARGS, "is_capturing(stream) -> bool"},
    {"synchronize", tw_stream_synchronize, METH_VARARGS, "synchronize(device, stream)"},
    {"stream_create", tw_stream_create, METH_VARARGS, "stream_create(device, priority) -> handle"},
    {"stream_destroy", tw_stream_destroy, METH_VARARGS, "stream_destroy(device, handle), without waiting"},
    {"stream_is_done", tw_stream_is_done, METH_VARARGS, "stream_is_done(device, stream) -> bool"},
    {"stream_order", tw_stream_order, METH_VARARGS, "stream_order(device of first, first, then)"},
    {"stream_handle", tw_stream_handle, METH_O, "stream_handle(stream) -> int"},
    {"pool_statistics", tw_pool_statistics, METH_VARARGS, "pool_statistics(device) -> dict"},
    {"pool_trim", tw_pool_trim, METH_VARARGS, "pool_trim(device, keep_bytes=0) -> bytes given back"},
    {"pool_set_limit", tw_pool_set_limit, METH_VARARGS, "pool_set_limit(device, bytes)"},
    {"borrow", tw_borrow, METH_VARARGS,
     "borrow(type, address, size_bytes, code, device, stream, owner, read_only, is_torch) -> Buffer"},
    {"borrow_array", (PyCFunction)(void (*)(void))tw_borrow_array, METH_FASTCALL, "borrow_array(type, value) -> Buffer | None"},
    {"operands", (PyCFunction)(void (*)(void))tw_operands, METH_FASTCALL | METH_KEYWORDS,
     "operands(type, convert, **values) -> (arrays, geometries)"},
    {"must_be_apart", (PyCFunction)(void (*)(void))tw_must_be_apart, METH_FASTCALL,
     "must_be_apart(ask, arrays, place, same) -> bool"},
    {"allocate", (PyCFunction)(void (*)(void))tw_allocate, METH_FASTCALL, "allocate(type, geometry, arrays) -> Buffer"},
    {"launch_stream", tw_launch_stream, METH_VARARGS, "launch_stream(arrays, device) -> handle"},
    {"set_geometry_type", tw_set_geometry_type, METH_O, "set_geometry_type(type of a named tuple)"},
    {"device_of", tw_device_of, METH_VARARGS, "device_of(address) -> ordinal"},
    {"dlpack_read", tw_dlpack_read, METH_O, "dlpack_read(capsule) -> (address, shape, strides, code, device)"},
    {"dlpack_export", tw_dlpack_export, METH_VARARGS, "dlpack_export(buffer, shape, strides) -> capsule"},
    {"copy_from_host", tw_copy_from_host, METH_VARARGS, "copy_from_host(buffer, data)"},
    {"copy_to_host", tw_copy_to_host, METH_VARARGS, "copy_to_host(buffer, data)"},
    {"copy", tw_copy, METH_VARARGS, "copy(destination, source)"},
    {"fill", tw_fill, METH_VARARGS, "fill(buffer, byte)"},
    {"load", tw_load, METH_VARARGS, "load(device, code, entry, shared_bytes) -> (is_library, handle, function)"},
    {"unload", tw_unload, METH_VARARGS, "unload(device, is_library, handle)"},
    {"resident_programs", tw_resident_programs, METH_VARARGS,
     "resident_programs(device, function, threads, shared_bytes) -> int"},
    {"tensor_map_statistics", tw_tensor_map_statistics, METH_NOARGS, "tensor_map_statistics() -> dict"},
    {"set_classifier", tw_set_classifier, METH_VARARGS,
     "set_classifier(classify, array_codes, torch_dtype, torch_stream)"},
    {"scalar_bits", tw_scalar_bits, METH_VARARGS, "scalar_bits(value, code) -> int"},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    if (tw_import_errors() < 0 || tw_arguments_ready() < 0 || tw_operands_ready() < 0 || tw_buffer_ready(module) < 0 ||
        tw_event_ready(module) < 0 || tw_graph_ready(module) < 0 || tw_plan_ready(module) < 0 ||
        tw_dispatch_ready(module) < 0 || PyModule_AddStringConstant(module, "INTERFACE", TW_INTERFACE) < 0) {
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tilewright.runtime._launcher",
    .m_doc = "Arguments to cuLaunchKernel, in C.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__launcher(void);

PyMODINIT_FUNC PyInit__launcher(void)
{
    return PyModuleDef_Init(&definition);
}
