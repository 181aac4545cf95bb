// `Dispatcher`: from `kernel[grid](...)` to a bound plan, without Python on a hit.
//
// What `kernel[grid]` gives is a built-in function over a `Launch`, which is a dispatcher and a grid: the
// interpreter calls those with the arguments where they lie, where a type with a call slot would be handed a tuple
// and a dict made for it. The last one over a grid of plain ints is kept, since most launches ask for it again.
//
// A launch is looked up by what its binary depends on: device, dtype of every argument, values of the
// constexprs, launch options, and the one bit that says whether the fast specialization is allowed. That bit
// restates abi/signature.py's `specialize`; on every miss Python computes the signature with that function
// and refuses to go on if the two disagree.
#include "launcher.h"

enum { MAX_ENTRIES = 4096, DEFAULT_NUM_WARPS = 4, DEFAULT_NUM_STAGES = 3, FAST_DIVISOR = 16 };

typedef struct {
    uint64_t hash;
    int device, num_warps, num_stages, is_fast;
    Plan *plan;
    unsigned char codes[MAX_PARAMETERS];
    PyObject *constexprs[];  // one per parameter, NULL for run-time ones
} Entry;

typedef struct {
    PyObject_HEAD
    PyObject *name, *names, *defaults, *missing, *resolve, *interpret;
    int count;
    unsigned char is_constexpr[MAX_PARAMETERS], divisible[MAX_PARAMETERS], unit[MAX_PARAMETERS];
    PyObject *known_names[MAX_PARAMETERS];  // borrowed from `names`
    Entry **table;
    Entry *latest;  // of the last launch, in the table; NULL where none is
    int capacity, used;
    uint64_t misses;
    PyObject *latest_grid, *latest_function;  // what the last grid of plain ints gave, or NULL
} Dispatcher;

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

typedef struct {
    int num_warps, num_stages;
    PyObject *values[MAX_PARAMETERS];  // borrowed
} Bound;

static PyTypeObject *dispatcher_type = NULL, *launch_type = NULL;
static PyObject *name_num_warps, *name_num_stages, *name_stream;

// ---- the cache

static void clear_entries(Dispatcher *self)
{
    Entry **table = self->table;
    int capacity = self->capacity;
    self->table = NULL;
    self->latest = NULL;
    self->capacity = self->used = 0;
    for (int i = 0; i < capacity; i++) {
        if (table[i] != NULL) {
            for (int p = 0; p < self->count; p++) {
                Py_XDECREF(table[i]->constexprs[p]);
            }
            Py_DECREF((PyObject *)table[i]->plan);
            PyMem_Free(table[i]);
        }
    }
    PyMem_Free(table);
}

// Equal values of different types are different constexprs (1, 1.0, True), and so are the two zeros. No Python
// code runs here: it could launch this kernel and move the table under our feet.
static int same_constexpr(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    if (Py_TYPE(a) != Py_TYPE(b)) {
        return 0;
    }
    if (PyFloat_CheckExact(a)) {
        double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (PyLong_CheckExact(a)) {
        return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
    }
    return PyUnicode_CheckExact(a) && PyUnicode_Compare(a, b) == 0;
}

static int is_hashed_by_value(PyObject *value)
{
    return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyFloat_CheckExact(value);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 32;
}

static uint64_t hash_call(const Dispatcher *self, const Call *call, const Bound *bound, int is_fast)
{
    uint64_t hash = mix((uint64_t)is_fast, (uint64_t)call->device << 32 | (uint64_t)bound->num_warps << 8 |
                                               (uint64_t)bound->num_stages);
    for (int i = 0; i < self->count; i++) {
        PyObject *value = call->slots[i].value;
        if (!self->is_constexpr[i]) {
            hash = mix(hash, call->slots[i].code | (uint64_t)call->slots[i].kind << 8);
        } else {
            hash = mix(hash, is_hashed_by_value(value) ? (uint64_t)PyObject_Hash(value) : (uint64_t)(uintptr_t)value);
        }
    }
    return hash;
}

static int matches(const Dispatcher *self, const Entry *entry, const Call *call, const Bound *bound, int is_fast)
{
    if (entry->is_fast != is_fast || entry->device != call->device || entry->num_warps != bound->num_warps ||
        entry->num_stages != bound->num_stages) {
        return 0;
    }
    for (int i = 0; i < self->count; i++) {
        if (!self->is_constexpr[i]) {
            if (entry->codes[i] != (call->slots[i].code | call->slots[i].kind << 6)) {
                return 0;
            }
            continue;
        }
        if (!same_constexpr(entry->constexprs[i], call->slots[i].value)) {
            return 0;
        }
    }
    return 1;
}

// A new reference, or NULL when there is none.
static Plan *find(Dispatcher *self, const Call *call, const Bound *bound, int is_fast, uint64_t hash)
{
    for (int probe = 0; probe < self->capacity; probe++) {
        Entry *entry = self->table[(hash + (uint64_t)probe) & (uint64_t)(self->capacity - 1)];
        if (entry == NULL) {
            return NULL;
        }
        if (entry->hash == hash && matches(self, entry, call, bound, is_fast)) {
            self->latest = entry;
            return (Plan *)Py_NewRef((PyObject *)entry->plan);
        }
    }
    return NULL;
}

static int grow(Dispatcher *self)
{
    int capacity = self->capacity == 0 ? 8 : self->capacity * 2;
    Entry **table = PyMem_Calloc((size_t)capacity, sizeof *table);
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < self->capacity; i++) {
        if (self->table[i] != NULL) {
            uint64_t place = self->table[i]->hash;
            while (table[place & (uint64_t)(capacity - 1)] != NULL) {
                place++;
            }
            table[place & (uint64_t)(capacity - 1)] = self->table[i];
        }
    }
    PyMem_Free(self->table);
    self->table = table;
    self->capacity = capacity;
    return 0;
}

static int insert(Dispatcher *self, const Call *call, const Bound *bound, int is_fast, uint64_t hash, Plan *plan)
{
    if (self->used >= MAX_ENTRIES) {
        clear_entries(self);  // a kernel called with ever new constexprs must not grow without bound
    }
    if (self->used * 2 >= self->capacity && grow(self) < 0) {
        return -1;
    }
    Entry *entry = PyMem_Calloc(1, sizeof *entry + (size_t)self->count * sizeof(PyObject *));
    if (entry == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    entry->hash = hash;
    entry->device = call->device;
    entry->num_warps = bound->num_warps;
    entry->num_stages = bound->num_stages;
    entry->is_fast = is_fast;
    entry->plan = (Plan *)Py_NewRef((PyObject *)plan);
    for (int i = 0; i < self->count; i++) {
        if (self->is_constexpr[i]) {
            entry->constexprs[i] = Py_NewRef(call->slots[i].value);
        } else {
            entry->codes[i] = (unsigned char)(call->slots[i].code | call->slots[i].kind << 6);
        }
    }
    uint64_t place = hash;
    while (self->table[place & (uint64_t)(self->capacity - 1)] != NULL) {
        place++;
    }
    self->table[place & (uint64_t)(self->capacity - 1)] = entry;
    self->used++;
    return 0;
}

// ---- one launch

static int allows_fast(const Dispatcher *self, const Call *call)
{
    for (int i = 0; i < self->count; i++) {
        const Slot *slot = &call->slots[i];
        if (slot->kind == SLOT_POINTER) {
            if (slot->bits % FAST_DIVISOR != 0) {
                return 0;
            }
        } else if (slot->kind == SLOT_SCALAR && slot->code != CODE_I1 && slot->code < CODE_F16) {
            if (!slot->is_exact) {
                return 0;
            }
            if (self->unit[i]) {
                if (slot->integer != 1) {
                    return 0;
                }
            } else if (slot->integer < -INT32_MAX || slot->integer > INT32_MAX ||
                       (self->divisible[i] && slot->integer % FAST_DIVISOR != 0)) {
                return 0;
            }
        }
    }
    return 1;
}

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

static PyObject *describe(const Dispatcher *self, const Call *call)
{
    PyObject *facts = PyTuple_New(self->count);
    for (int i = 0; facts != NULL && i < self->count; i++) {
        const Slot *slot = &call->slots[i];
        PyObject *fact = slot->kind == SLOT_POINTER
                             ? Py_BuildValue("(iiK)", slot->kind, slot->code, (unsigned long long)slot->bits)
                             : Py_BuildValue("(iiO)", slot->kind, slot->code, slot->value);
        if (fact == NULL || PyTuple_SetItem(facts, i, fact) < 0) {
            Py_CLEAR(facts);
        }
    }
    return facts;
}

static Plan *resolve_miss(Dispatcher *self, Call *call, const Bound *bound, int is_fast, uint64_t hash)
{
    self->misses++;
    PyObject *facts = describe(self, call);
    PyObject *answer =
        facts == NULL ? NULL
                      : PyObject_CallFunction(self->resolve, "iOiiii", call->device, facts, bound->num_warps,
                                              bound->num_stages, is_fast, tw_is_capturing(call->stream));
    Py_XDECREF(facts);
    if (answer == NULL) {
        return NULL;
    }
    if (!PyObject_TypeCheck(answer, tw_plan_type) || tw_plan_device((Plan *)answer) != call->device) {
        PyErr_SetString(PyExc_RuntimeError, "resolve() gave no plan for this device");
        Py_DECREF(answer);
        return NULL;
    }
    // Python ran in between, maybe a launch of the same kernel: do not enter it twice.
    Plan *known = find(self, call, bound, is_fast, hash);
    if (known != NULL) {
        Py_DECREF((PyObject *)known);
        return (Plan *)answer;
    }
    if (insert(self, call, bound, is_fast, hash, (Plan *)answer) < 0) {
        Py_DECREF(answer);
        return NULL;
    }
    return (Plan *)answer;
}

static int interpret(const Dispatcher *self, const Bound *bound, const uint64_t grid[3])
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

static int launch_on_device(Dispatcher *self, Call *call, const Bound *bound, const uint64_t grid[3])
{
    if (call->device < 0) {
        call->device = 0;
    }
    PyObject *owner;
    if (!call->has_stream && tw_recorded_stream(call->device, &call->stream, &owner)) {
        call->has_stream = 1;
    }
    if (tw_device(call->device) == NULL || tw_finish_arguments(call) < 0) {
        return -1;
    }
    int is_fast = allows_fast(self, call);
    Plan *plan;
    if (self->latest != NULL && matches(self, self->latest, call, bound, is_fast)) {
        plan = (Plan *)Py_NewRef((PyObject *)self->latest->plan);
    } else {
        uint64_t hash = hash_call(self, call, bound, is_fast);
        plan = find(self, call, bound, is_fast, hash);
        if (plan == NULL) {
            plan = resolve_miss(self, call, bound, is_fast, hash);
        }
        if (plan == NULL) {
            return -1;
        }
    }
    int status = tw_plan_launch(plan, call, grid);
    Py_DECREF((PyObject *)plan);
    return status;
}

static int run(const Launch *launch, const Given *given, Call *call)
{
    Dispatcher *self = launch->dispatcher;
    Bound bound;
    uint64_t grid[3];
    if (bind(self, given, &bound, call) < 0) {
        return -1;
    }
    for (int i = 0; i < self->count; i++) {
        if ((self->is_constexpr[i] ? tw_classify_constexpr(call, i, bound.values[i])
                                   : tw_classify(call, i, bound.values[i])) < 0) {
            return -1;
        }
    }
    if (call->host_from >= 0 && call->device >= 0) {
        PyErr_Format(tw_argument_error, "%U: argument %R is on the host and %R is on device %d; give device arrays "
                     "only (GPU) or NumPy arrays only (interpreter)", self->name,
                     PyTuple_GetItem(self->names, call->host_from), PyTuple_GetItem(self->names, call->device_from),
                     call->device);
        return -1;
    }
    if (parse_grid(launch, &bound, grid) < 0) {
        return -1;
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) {
        return 0;
    }
    return call->host_from >= 0 ? interpret(self, &bound, grid) : launch_on_device(self, call, &bound, grid);
}

// launch(*arguments, **keywords) of a `Launch`
static PyObject *launch(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    const Launch *self = (Launch *)object;
    const Dispatcher *dispatcher = self->dispatcher;
    Given given = {.positional = arguments, .count = count, .names = names};
    Call call;
    call.count = dispatcher->count;
    call.device = call.host_from = -1;
    call.device_from = 0;
    call.has_stream = 0;
    call.stream = NULL;
    call.foreign_count = call.held_count = call.source_count = call.has_dlpack = 0;
    call.names = dispatcher->names;
    call.kernel = dispatcher->name;
    int status = run(self, &given, &call);
    for (int i = 0; i < call.held_count; i++) {
        Py_DECREF(call.held[i]);
    }
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
    clear_entries(self);
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
    clear_entries((Dispatcher *)object);
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
    name_num_warps = PyUnicode_InternFromString("num_warps");
    name_num_stages = PyUnicode_InternFromString("num_stages");
    name_stream = PyUnicode_InternFromString("stream");
    dispatcher_type = (PyTypeObject *)PyType_FromSpec(&dispatcher_spec);
    if (name_num_warps == NULL || name_num_stages == NULL || name_stream == NULL || dispatcher_type == NULL) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "Dispatcher", (PyObject *)dispatcher_type);
}
