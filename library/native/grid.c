// A grid: an int, or 1 to 3 ints, as the extents of a launch. One that is a function was called before.
#include "launcher.h"

static int parse_extent(PyObject *kernel, PyObject *object, uint64_t *extent)
{
    PyObject *integer = PyLong_CheckExact(object) ? Py_NewRef(object) : PyNumber_Index(object);
    if (integer == NULL) {
        PyErr_Clear();
        PyErr_Format(tw_launch_error, "%U: the grid must be an int, 1 to 3 ints or a function of the arguments that "
                     "gives such, not %R", kernel, object);
        return -1;
    }
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(integer, &overflow);
    Py_DECREF(integer);
    if (overflow != 0 || value < 0) {
        PyErr_Format(tw_launch_error, "%U: a grid axis of %S programs is impossible; it must be 0 to 2**31 - 1",
                     kernel, object);
        return -1;
    }
    *extent = (uint64_t)value;
    return 0;
}

int tw_parse_grid(PyObject *kernel, PyObject *object, uint64_t grid[3])
{
    grid[0] = grid[1] = grid[2] = 1;
    if (!PyTuple_Check(object) && !PyList_Check(object)) {
        return parse_extent(kernel, object, &grid[0]);
    }
    PyObject *tuple = PyTuple_Check(object) ? Py_NewRef(object) : PySequence_Tuple(object);
    Py_ssize_t count = tuple == NULL ? -1 : PyTuple_Size(tuple);
    int status = tuple == NULL ? -1 : 0;
    if (status == 0 && (count < 1 || count > 3)) {
        PyErr_Format(tw_launch_error, "%U: a grid has 1 to 3 axes, not %zd", kernel, count);
        status = -1;
    }
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        status = parse_extent(kernel, PyTuple_GetItem(tuple, i), &grid[i]);
    }
    Py_XDECREF(tuple);
    return status;
}

// Whether a grid is an int or a tuple of 1 to 3, none negative or too large for 64 bits, and then its extents.
// Whatever else it is becomes an error, or an answer, when the launch reads it.
int tw_read_plain_grid(PyObject *grid, uint64_t extents[3])
{
    int is_tuple = PyTuple_CheckExact(grid);
    Py_ssize_t count = is_tuple ? PyTuple_Size(grid) : 1;
    if (count < 1 || count > 3) {
        return 0;
    }
    extents[0] = extents[1] = extents[2] = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *extent = is_tuple ? PyTuple_GetItem(grid, i) : grid;
        int overflow = 0;
        long long value = PyLong_CheckExact(extent) ? PyLong_AsLongLongAndOverflow(extent, &overflow) : -1;
        if (value < 0 || overflow != 0) {
            return 0;
        }
        extents[i] = (uint64_t)value;
    }
    return 1;
}
