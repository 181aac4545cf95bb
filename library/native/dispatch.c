// `Dispatcher`: from `kernel[grid](...)` to a bound plan, without Python on a hit.
//
// What `kernel[grid]` gives is a built-in function over a `Launch`, which is a dispatcher and a grid: the
// interpreter calls those with the arguments where they lie, where a type with a call slot would be handed a tuple
// and a dict made for it. The last one over a grid of plain ints is kept, since most launches ask for it again.
#include "dispatch.h"

typedef struct {
    PyObject_HEAD
    Dispatcher *dispatcher;
    PyObject *grid;
    int is_plain;  // the grid is made of ints, which cannot change: `extents` are theirs
    uint64_t extents[3];
} Launch;

typedef struct {
    PyObject *const *positional;
    Py_ssize_t count;
    PyObject *names;  // tuple of the keywords, whose values follow the positional ones, or NULL
} Given;

static PyTypeObject *dispatcher_type = NULL, *launch_type = NULL;
static PyObject *name_num_warps, *name_num_stages, *name_stream;

// ---- one launch

static int parse_option(const Dispatcher *self, PyObject *name, PyObject *value, int *option)
{
    long number = PyLong_Check(value) && !PyBool_Check(value) ? PyLong_AsLong(value) : -1;
    if (number < 1 || number > 255) {
        PyErr_Clear();
        PyErr_Format(tw_argument_error, "%U: %U must be a small positive integer, not %R", self->name, name, value);
        return -1;
    }
    *option = (int)number;
    return 0;
}

static int bind_keyword(const Dispatcher *self, PyObject *name, PyObject *value, Bound *bound, Call *call)
{
    // Names are interned on both sides, so identity nearly always settles it.
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < self->count; i++) {
            PyObject *known = self->known_names[i];
            if (known == name || (pass == 1 && PyUnicode_Compare(known, name) == 0)) {
                if (bound->values[i] != NULL) {
                    PyErr_Format(tw_argument_error, "%U: argument %R was given twice", self->name, name);
                    return -1;
                }
                bound->values[i] = value;
                return 0;
            }
        }
        if (name == name_num_warps || (pass == 1 && PyUnicode_Compare(name, name_num_warps) == 0)) {
            return parse_option(self, name, value, &bound->num_warps);
        }
        if (name == name_num_stages || (pass == 1 && PyUnicode_Compare(name, name_num_stages) == 0)) {
            return parse_option(self, name, value, &bound->num_stages);
        }
        if (name == name_stream || (pass == 1 && PyUnicode_Compare(name, name_stream) == 0)) {
            call->has_stream = value != Py_None;
            return tw_parse_stream(value, &call->stream);
        }
    }
    // Kernels written for Triton may say it; there is nothing to choose.
    if (PyUnicode_CompareWithASCIIString(name, "num_ctas") == 0) {
        int ctas = 0;
        if (parse_option(self, name, value, &ctas) < 0) {
            return -1;
        }
        if (ctas == 1) {
            return 0;
        }
        PyErr_Format(tw_argument_error, "%U: num_ctas must be 1, not %d: a program is one thread block", self->name, ctas);
        return -1;
    }
    PyErr_Format(tw_argument_error, "%U: there is no argument %R; the parameters are %R and the options num_warps, "
                 "num_stages, stream", self->name, name, self->names);
    return -1;
}

static int bind(const Dispatcher *self, const Given *given, Bound *bound, Call *call)
{
    if (given->count > self->count) {
        PyErr_Format(tw_argument_error, "%U: takes %d arguments, but %zd were given", self->name, self->count,
                     given->count);
        return -1;
    }
    bound->num_warps = DEFAULT_NUM_WARPS;
    bound->num_stages = DEFAULT_NUM_STAGES;
    for (int i = 0; i < self->count; i++) {
        bound->values[i] = i < (int)given->count ? given->positional[i] : NULL;
    }
    Py_ssize_t keywords = given->names == NULL ? 0 : PyTuple_Size(given->names);
    for (Py_ssize_t i = 0; i < keywords; i++) {
        if (bind_keyword(self, PyTuple_GetItem(given->names, i), given->positional[given->count + i], bound, call) < 0) {
            return -1;
        }
    }
    for (int i = 0; i < self->count; i++) {
        if (bound->values[i] == NULL) {
            bound->values[i] = PyTuple_GetItem(self->defaults, i);
            if (bound->values[i] == self->missing) {
                PyErr_Format(tw_argument_error, "%U: argument %R is missing; the parameters are %R", self->name,
                             PyTuple_GetItem(self->names, i), self->names);
                return -1;
            }
        }
    }
    return 0;
}

static PyObject *values_by_name(const Dispatcher *self, const Bound *bound)
{
    PyObject *values = PyDict_New();
    for (int i = 0; values != NULL && i < self->count; i++) {
        if (PyDict_SetItem(values, PyTuple_GetItem(self->names, i), bound->values[i]) < 0) {
            Py_CLEAR(values);
        }
    }
    return values;
}

static int parse_grid(const Launch *launch, const Bound *bound, uint64_t grid[3])
{
    const Dispatcher *self = launch->dispatcher;
    PyObject *object = launch->grid;
    if (launch->is_plain) {
        memcpy(grid, launch->extents, sizeof launch->extents);
        return 0;
    }
    if (PyLong_Check(object) || PyTuple_Check(object) || !PyCallable_Check(object)) {
        return tw_parse_grid(self->name, object, grid);
    }
    PyObject *values = values_by_name(self, bound);
    PyObject *answer = values == NULL ? NULL : PyObject_CallFunctionObjArgs(object, values, NULL);
    Py_XDECREF(values);
    int status = answer == NULL ? -1 : tw_parse_grid(self->name, answer, grid);
    Py_XDECREF(answer);
    return status;
}

int tw_interpret(const Dispatcher *self, const Bound *bound, const uint64_t grid[3])
{
    PyObject *values = values_by_name(self, bound);
    if (values == NULL) {
        return -1;
    }
    PyObject *answer = PyObject_CallFunction(self->interpret, "(KKK)Oii", (unsigned long long)grid[0],
                                             (unsigned long long)grid[1], (unsigned long long)grid[2], values,
                                             bound->num_warps, bound->num_stages);
    Py_DECREF(values);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

int tw_find_device(Call *call)
{
    if (call->device < 0) {
        call->device = 0;
    }
    PyObject *owner;
    if (!call->has_stream && tw_recorded_stream(call->device, &call->stream, &owner)) {
        call->has_stream = 1;
    }
    return tw_device(call->device) == NULL ? -1 : tw_finish_arguments(call);
}

static int launch_on_device(Dispatcher *self, Call *call, const Bound *bound, const uint64_t grid[3], int is_fast)
{
    if (tw_find_device(call) < 0) {
        return -1;
    }
    // What DLPack was asked for has its address only now.
    for (int i = 0; call->has_dlpack && is_fast && i < self->count; i++) {
        is_fast = tw_slot_allows_fast(self, &call->slots[i], i);
    }
    Plan *plan = tw_plan_for(self, call, bound, is_fast);
    if (plan == NULL) {
        return -1;
    }
    int status = tw_plan_launch(plan, call, grid);
    Py_DECREF((PyObject *)plan);
    return status;
}

int tw_check_sides(const Dispatcher *self, const Call *call)
{
    if (call->host_from < 0 || call->device < 0) {
        return 0;
    }
    PyErr_Format(tw_argument_error, "%U: argument %R is on the host and %R is on device %d; give device arrays "
                 "only (GPU) or NumPy arrays only (interpreter)", self->name,
                 PyTuple_GetItem(self->names, call->host_from), PyTuple_GetItem(self->names, call->device_from),
                 call->device);
    return -1;
}

static int run(const Launch *launch, const Given *given, Call *call)
{
    Dispatcher *self = launch->dispatcher;
    Bound bound;
    uint64_t grid[3];
    if (bind(self, given, &bound, call) < 0) {
        return -1;
    }
    int is_fast = 1;
    for (int i = 0; i < self->count; i++) {
        if ((self->is_constexpr[i] ? tw_classify_constexpr(call, i, bound.values[i])
                                   : tw_classify(call, i, bound.values[i])) < 0) {
            return -1;
        }
        is_fast &= tw_slot_allows_fast(self, &call->slots[i], i);
    }
    if (tw_check_sides(self, call) < 0) {
        return -1;
    }
    if (parse_grid(launch, &bound, grid) < 0) {
        return -1;
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) {
        return 0;
    }
    return call->host_from >= 0 ? tw_interpret(self, &bound, grid)
                                : launch_on_device(self, call, &bound, grid, is_fast);
}

// Field by field: clearing the whole of it costs more than a launch.
void tw_begin_call(Call *call, const Dispatcher *self)
{
    call->count = self->count;
    call->device = call->host_from = -1;
    call->device_from = 0;
    call->has_stream = 0;
    call->stream = NULL;
    call->foreign_count = call->held_count = call->source_count = call->has_dlpack = 0;
    call->names = self->names;
    call->kernel = self->name;
}

void tw_end_call(Call *call)
{
    for (int i = 0; i < call->held_count; i++) {
        Py_DECREF(call->held[i]);
    }
}

// launch(*arguments, **keywords) of a `Launch`
static PyObject *launch(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    const Launch *self = (Launch *)object;
    Given given = {.positional = arguments, .count = count, .names = names};
    Call call;
    tw_begin_call(&call, self->dispatcher);
    int status = run(self, &given, &call);
    tw_end_call(&call);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// ---- types

static int read_flags(PyObject *tuple, int count, unsigned char *flags)
{
    if (PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_ValueError, "one flag per parameter is needed");
        return -1;
    }
    for (int i = 0; i < count; i++) {
        flags[i] = (unsigned char)(PyObject_IsTrue(PyTuple_GetItem(tuple, i)) > 0);
    }
    return 0;
}

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *keys[] = {"name", "names", "constexprs", "defaults", "missing", "divisible", "unit", "resolve",
                           "interpret", NULL};
    PyObject *name, *names, *constexprs, *defaults, *missing, *divisible, *unit, *resolve, *interpreter;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "UO!O!O!OO!O!OO", keys, &name, &PyTuple_Type, &names,
                                     &PyTuple_Type, &constexprs, &PyTuple_Type, &defaults, &missing, &PyTuple_Type,
                                     &divisible, &PyTuple_Type, &unit, &resolve, &interpreter)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(names);
    if (count > MAX_PARAMETERS) {
        return PyErr_Format(tw_argument_error, "%U: a kernel has at most %d parameters, not %zd", name, MAX_PARAMETERS,
                            count);
    }
    if (PyTuple_Size(defaults) != count) {
        PyErr_SetString(PyExc_ValueError, "one default per parameter is needed");
        return NULL;
    }
    PyObject *interned = PyTuple_New(count);
    for (Py_ssize_t i = 0; interned != NULL && i < count; i++) {
        PyObject *item = PyTuple_GetItem(names, i);
        if (!PyUnicode_Check(item)) {
            Py_CLEAR(interned);
            PyErr_SetString(PyExc_TypeError, "parameter names are strings");
            break;
        }
        Py_INCREF(item);
        PyUnicode_InternInPlace(&item);
        PyTuple_SetItem(interned, i, item);
    }
    Dispatcher *self = interned == NULL ? NULL : (Dispatcher *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(interned);
        return NULL;
    }
    self->name = Py_NewRef(name);
    self->names = interned;
    self->defaults = Py_NewRef(defaults);
    self->missing = Py_NewRef(missing);
    self->resolve = Py_NewRef(resolve);
    self->interpret = Py_NewRef(interpreter);
    self->count = (int)count;
    for (int i = 0; i < self->count; i++) {
        self->known_names[i] = PyTuple_GetItem(interned, i);
    }
    if (read_flags(constexprs, self->count, self->is_constexpr) < 0 ||
        read_flags(divisible, self->count, self->divisible) < 0 || read_flags(unit, self->count, self->unit) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int dispatcher_traverse(PyObject *object, visitproc visit, void *arg)
{
    Dispatcher *self = (Dispatcher *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->resolve);
    Py_VISIT(self->interpret);
    Py_VISIT(self->defaults);
    Py_VISIT(self->latest_grid);
    Py_VISIT(self->latest_function);
    for (int i = 0; i < self->capacity; i++) {
        if (self->table[i] != NULL) {
            Py_VISIT((PyObject *)self->table[i]->plan);
            for (int p = 0; p < self->count; p++) {
                Py_VISIT(self->table[i]->constexprs[p]);
            }
        }
    }
    return 0;
}

static int dispatcher_clear(PyObject *object)
{
    Dispatcher *self = (Dispatcher *)object;
    tw_forget_plans(self);
    Py_CLEAR(self->latest_grid);
    Py_CLEAR(self->latest_function);
    Py_CLEAR(self->resolve);
    Py_CLEAR(self->interpret);
    Py_CLEAR(self->defaults);
    return 0;
}

static void dispatcher_dealloc(PyObject *object)
{
    Dispatcher *self = (Dispatcher *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    dispatcher_clear(object);
    Py_CLEAR(self->name);
    Py_CLEAR(self->names);
    Py_CLEAR(self->missing);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef launch_definition = {
    "launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL | METH_KEYWORDS,
    "Launch the kernel with these arguments, and num_warps, num_stages and stream as keywords."};

static PyObject *new_function(Dispatcher *self, PyObject *grid, int is_plain, const uint64_t extents[3])
{
    Launch *made = (Launch *)PyType_GenericAlloc(launch_type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->dispatcher = (Dispatcher *)Py_NewRef((PyObject *)self);
    made->grid = Py_NewRef(grid);
    made->is_plain = is_plain;
    memcpy(made->extents, extents, sizeof made->extents);
    PyObject *function = PyCFunction_NewEx(&launch_definition, (PyObject *)made, NULL);
    Py_DECREF((PyObject *)made);
    return function;
}

// over(grid): what launches over that grid
static PyObject *dispatcher_over(PyObject *object, PyObject *grid)
{
    Dispatcher *self = (Dispatcher *)object;
    if (grid == self->latest_grid) {
        return Py_NewRef(self->latest_function);
    }
    uint64_t extents[3];
    int is_plain = tw_read_plain_grid(grid, extents);
    if (is_plain && self->latest_function != NULL) {
        const Launch *latest = (Launch *)PyCFunction_GetSelf(self->latest_function);
        if (memcmp(latest->extents, extents, sizeof extents) == 0) {
            return Py_NewRef(self->latest_function);
        }
    }
    PyObject *function = new_function(self, grid, is_plain, extents);
    // Other grids are not kept: a function may hold arrays alive, and a list may change.
    if (is_plain && function != NULL) {
        PyObject *old_grid = self->latest_grid, *old_function = self->latest_function;
        self->latest_grid = Py_NewRef(grid);
        self->latest_function = Py_NewRef(function);
        Py_XDECREF(old_grid);
        Py_XDECREF(old_function);
    }
    return function;
}

static PyObject *dispatcher_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    if (keywords != NULL || PyTuple_Size(arguments) != 1) {
        PyErr_SetString(PyExc_TypeError, "a dispatcher is called with the grid");
        return NULL;
    }
    return dispatcher_over(object, PyTuple_GetItem(arguments, 0));
}

static PyObject *dispatcher_forget(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    tw_forget_plans((Dispatcher *)object);
    Py_RETURN_NONE;
}

static PyObject *get_entries(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Dispatcher *)self)->used);
}

static PyObject *get_misses(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Dispatcher *)self)->misses);
}

static PyMethodDef dispatcher_methods[] = {
    {"over", dispatcher_over, METH_O, "Return what launches over a grid, as a call of the dispatcher does."},
    {"prepare", tw_prepare, METH_VARARGS,
     "prepare(grid, values, sources, num_warps, num_stages): what launches with values known before."},
    {"forget", dispatcher_forget, METH_NOARGS, "Drop every bound plan; the next launches resolve again."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dispatcher_properties[] = {
    {"entries", get_entries, NULL, "How many plans are bound.", NULL},
    {"misses", get_misses, NULL, "How many launches had to be resolved.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dispatcher_slots[] = {
    {Py_tp_doc, "The launches of one kernel; calling it with a grid gives what is called with the arguments."},
    {Py_tp_new, dispatcher_new},
    {Py_tp_dealloc, dispatcher_dealloc},
    {Py_tp_traverse, dispatcher_traverse},
    {Py_tp_clear, dispatcher_clear},
    {Py_tp_call, dispatcher_call},
    {Py_tp_methods, dispatcher_methods},
    {Py_tp_getset, dispatcher_properties},
    {0, NULL},
};

static PyType_Spec dispatcher_spec = {
    .name = "tilewright.runtime._launcher.Dispatcher",
    .basicsize = sizeof(Dispatcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = dispatcher_slots,
};

static int launch_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((Launch *)object)->dispatcher);
    Py_VISIT(((Launch *)object)->grid);
    return 0;
}

// A launch has no clear: cycles through it go through its dispatcher, which has one, and a function that is still
// called after a collection needs both fields.
static void launch_dealloc(PyObject *object)
{
    Launch *self = (Launch *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)self->dispatcher);
    Py_XDECREF(self->grid);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyType_Slot launch_slots[] = {
    {Py_tp_doc, "A dispatcher and a grid."},
    {Py_tp_dealloc, launch_dealloc},
    {Py_tp_traverse, launch_traverse},
    {0, NULL},
};

static PyType_Spec launch_spec = {
    .name = "tilewright.runtime._launcher.Launch",
    .basicsize = sizeof(Launch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = launch_slots,
};

int tw_dispatch_ready(PyObject *module)
{
    launch_type = (PyTypeObject *)PyType_FromSpec(&launch_spec);
    if (launch_type == NULL) {
        return -1;
    }
    if (tw_prepared_ready() < 0) {
        return -1;
    }
    name_num_warps = PyUnicode_InternFromString("num_warps");
    name_num_stages = PyUnicode_InternFromString("num_stages");
    name_stream = PyUnicode_InternFromString("stream");
    dispatcher_type = (PyTypeObject *)PyType_FromSpec(&dispatcher_spec);
    if (name_num_warps == NULL || name_num_stages == NULL || name_stream == NULL || dispatcher_type == NULL) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "Dispatcher", (PyObject *)dispatcher_type);
}
