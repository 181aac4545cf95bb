// `Prepared`: a launch but for some of its arguments. Operations launch the same way again and again, with all but their
// arrays and a scalar or two known since they were planned: those are classified once, and a call brings the others.
//
// What it remembers of its last launch is the plan and what that depends on beside the values known before.
#include "dispatch.h"

typedef struct {
    int parameter, index;  // of the parameter; in the arrays, or in the scalars from -1 down
} Place;

typedef struct {
    PyObject_VAR_HEAD
    Dispatcher *dispatcher;
    uint64_t grid[3];
    PyObject *values, *plain;  // the values known before, and a list of what some of them were made
    Bound bound;
    int allows_fast, place_count;
    Place places[MAX_PARAMETERS];
    Plan *plan;
    uint64_t version;  // of the table of plans at that time
    int device, is_fast;
    unsigned char codes[MAX_PARAMETERS];  // dtype and kind in each place
    Slot slots[];
} Prepared;

static PyTypeObject *prepared_type = NULL;

static PyObject *value_at(PyObject *arrays, PyObject *scalars, int index)
{
    return index >= 0 ? PyList_GetItem(arrays, index) : PyTuple_GetItem(scalars, -1 - index);
}

static Plan *plan_of(Prepared *self, Call *call, int is_fast)
{
    int is_known = self->plan != NULL && self->version == self->dispatcher->version && self->device == call->device &&
                   self->is_fast == is_fast;
    for (int i = 0; is_known && i < self->place_count; i++) {
        const Slot *slot = &call->slots[self->places[i].parameter];
        is_known = self->codes[i] == (slot->code | slot->kind << 6);
    }
    if (is_known) {
        return (Plan *)Py_NewRef((PyObject *)self->plan);
    }
    Plan *plan = tw_plan_for(self->dispatcher, call, &self->bound, is_fast);
    if (plan != NULL) {
        Plan *old = self->plan;
        self->plan = (Plan *)Py_NewRef((PyObject *)plan);
        self->version = self->dispatcher->version;
        self->device = call->device;
        self->is_fast = is_fast;
        for (int i = 0; i < self->place_count; i++) {
            const Slot *slot = &call->slots[self->places[i].parameter];
            self->codes[i] = (unsigned char)(slot->code | slot->kind << 6);
        }
        Py_XDECREF((PyObject *)old);
    }
    return plan;
}

static int launch_on_device(Prepared *self, Call *call)
{
    if (tw_find_device(call) < 0) {
        return -1;
    }
    int is_fast = self->allows_fast;
    for (int i = 0; is_fast && i < self->place_count; i++) {
        int parameter = self->places[i].parameter;
        is_fast = tw_slot_allows_fast(self->dispatcher, &call->slots[parameter], parameter);
    }
    Plan *plan = plan_of(self, call, is_fast);
    if (plan == NULL) {
        return -1;
    }
    int status = tw_plan_launch(plan, call, self->grid);
    Py_DECREF((PyObject *)plan);
    return status;
}

static int interpret(const Prepared *self, const Call *call)
{
    Bound bound = self->bound;
    for (int i = 0; i < self->place_count; i++) {
        int parameter = self->places[i].parameter;
        bound.values[parameter] = call->slots[parameter].value;
    }
    return tw_interpret(self->dispatcher, &bound, self->grid);
}

static int run(Prepared *self, PyObject *arrays, PyObject *scalars, Call *call)
{
    memcpy(call->slots, self->slots, (size_t)call->count * sizeof call->slots[0]);
    for (int i = 0; i < self->place_count; i++) {
        int parameter = self->places[i].parameter;
        PyObject *value = value_at(arrays, scalars, self->places[i].index);
        if (value == NULL || tw_classify(call, parameter, value) < 0) {
            return -1;
        }
    }
    if (tw_check_sides(self->dispatcher, call) < 0) {
        return -1;
    }
    if (self->grid[0] == 0 || self->grid[1] == 0 || self->grid[2] == 0) {
        return 0;
    }
    return call->host_from >= 0 ? interpret(self, call) : launch_on_device(self, call);
}

// launch(arrays, scalars) of a `Prepared`: a list and a tuple
static PyObject *launch(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Prepared *self = (Prepared *)object;
    if (count != 2 || !PyList_Check(arguments[0]) || !PyTuple_Check(arguments[1])) {
        return PyErr_Format(PyExc_TypeError, "a prepared launch is called with a list of arrays and a tuple of scalars");
    }
    Call call;
    tw_begin_call(&call, self->dispatcher);
    int status = run(self, arguments[0], arguments[1], &call);
    tw_end_call(&call);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef launch_definition = {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL,
                                        "launch(arrays, scalars): with the values that were not known before."};

static int read_place(Prepared *self, int parameter, PyObject *source)
{
    long index = PyLong_AsLong(source);
    if (index == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (self->dispatcher->is_constexpr[parameter]) {
        PyErr_Format(tw_argument_error, "%U: %R is a constexpr, so it must be known before", self->dispatcher->name,
                     PyTuple_GetItem(self->dispatcher->names, parameter));
        return -1;
    }
    self->places[self->place_count++] = (Place){.parameter = parameter, .index = (int)index};
    self->slots[parameter] = (Slot){0};
    return 0;
}

// Classifies a value once for all launches. It is a scalar or a constexpr: an array would have to be asked again.
static int read_value(Prepared *self, Call *call, int parameter)
{
    PyObject *value = self->bound.values[parameter];
    int is_constexpr = self->dispatcher->is_constexpr[parameter];
    if ((is_constexpr ? tw_classify_constexpr(call, parameter, value) : tw_classify(call, parameter, value)) < 0) {
        return -1;
    }
    Slot *slot = &call->slots[parameter];
    if (!is_constexpr && slot->kind != SLOT_SCALAR) {
        PyErr_Format(tw_argument_error, "%U: %R is no scalar, so it must be given at each launch", call->kernel,
                     PyTuple_GetItem(call->names, parameter));
        return -1;
    }
    self->slots[parameter] = *slot;
    self->allows_fast = self->allows_fast && tw_slot_allows_fast(self->dispatcher, slot, parameter);
    return 0;
}

static int read_arguments(Prepared *self, PyObject *values, PyObject *sources, Call *call)
{
    for (int i = 0; i < call->count; i++) {
        PyObject *source = PyTuple_GetItem(sources, i);
        self->bound.values[i] = PyTuple_GetItem(values, i);
        if ((source != Py_None ? read_place(self, i, source) : read_value(self, call, i)) < 0) {
            return -1;
        }
    }
    // What a constexpr was made plain to is held here from now on.
    for (int i = 0; i < call->held_count; i++) {
        if (PyList_Append(self->plain, call->held[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

// prepare(grid, values, sources, num_warps, num_stages): both tuples have one item per parameter. A source is None for
// a value known before, else says where a launch finds it: in its arrays, or from -1 down in its scalars.
PyObject *tw_prepare(PyObject *object, PyObject *arguments)
{
    Dispatcher *dispatcher = (Dispatcher *)object;
    PyObject *grid, *values, *sources;
    unsigned char num_warps, num_stages;
    if (!PyArg_ParseTuple(arguments, "OO!O!bb", &grid, &PyTuple_Type, &values, &PyTuple_Type, &sources, &num_warps,
                          &num_stages)) {
        return NULL;
    }
    if (num_warps == 0 || num_stages == 0) {
        return PyErr_Format(tw_argument_error, "%U: num_warps and num_stages are 1 or more", dispatcher->name);
    }
    if (PyTuple_Size(values) != dispatcher->count || PyTuple_Size(sources) != dispatcher->count) {
        return PyErr_Format(tw_argument_error, "%U: takes %d arguments, but %zd were given", dispatcher->name,
                            dispatcher->count, PyTuple_Size(values));
    }
    Prepared *self = (Prepared *)PyType_GenericAlloc(prepared_type, dispatcher->count);
    if (self == NULL) {
        return NULL;
    }
    self->dispatcher = (Dispatcher *)Py_NewRef(object);
    self->values = Py_NewRef(values);
    self->plain = PyList_New(0);
    self->allows_fast = 1;
    self->bound.num_warps = num_warps;
    self->bound.num_stages = num_stages;
    Call call;
    tw_begin_call(&call, dispatcher);
    int status = self->plain == NULL || tw_parse_grid(dispatcher->name, grid, self->grid) < 0
                     ? -1
                     : read_arguments(self, values, sources, &call);
    tw_end_call(&call);
    PyObject *function = status < 0 ? NULL : PyCFunction_NewEx(&launch_definition, (PyObject *)self, NULL);
    Py_DECREF((PyObject *)self);
    return function;
}

static int prepared_traverse(PyObject *object, visitproc visit, void *arg)
{
    Prepared *self = (Prepared *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->dispatcher);
    Py_VISIT(self->values);
    Py_VISIT((PyObject *)self->plan);
    return 0;
}

// There is no clear, as of a `Launch`: cycles go through the dispatcher, which has one.
static void prepared_dealloc(PyObject *object)
{
    Prepared *self = (Prepared *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)self->dispatcher);
    Py_XDECREF(self->values);
    Py_XDECREF(self->plain);
    Py_XDECREF((PyObject *)self->plan);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyType_Slot prepared_slots[] = {
    {Py_tp_doc, "A launch but for some of its arguments."},
    {Py_tp_dealloc, prepared_dealloc},
    {Py_tp_traverse, prepared_traverse},
    {0, NULL},
};

static PyType_Spec prepared_spec = {
    .name = "tilewright.runtime._launcher.Prepared",
    .basicsize = sizeof(Prepared),
    .itemsize = sizeof(Slot),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = prepared_slots,
};

int tw_prepared_ready(void)
{
    prepared_type = (PyTypeObject *)PyType_FromSpec(&prepared_spec);
    return prepared_type == NULL ? -1 : 0;
}
