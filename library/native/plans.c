// Which plan serves a launch: those found before, and Python on a miss.
//
// A launch is looked up by what its binary depends on: device, dtype of every argument, values of the
// constexprs, launch options, and the one bit that says whether the fast specialization is allowed. That bit
// restates abi/signature.py's `specialize`; on every miss Python computes the signature with that function
// and refuses to go on if the two disagree.
#include "dispatch.h"

enum { MAX_ENTRIES = 4096 };

void tw_forget_plans(Dispatcher *self)
{
    Entry **table = self->table;
    int capacity = self->capacity;
    self->table = NULL;
    self->latest = NULL;
    self->capacity = self->used = 0;
    self->version++;
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
        const Slot *slot = &call->slots[i];
        if (entry->codes[i] != (slot->code | slot->kind << 6) ||
            (slot->kind == SLOT_CONSTEXPR && !same_constexpr(entry->constexprs[i], slot->value))) {
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
        tw_forget_plans(self);  // a kernel called with ever new constexprs must not grow without bound
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
        entry->codes[i] = (unsigned char)(call->slots[i].code | call->slots[i].kind << 6);
        entry->constexprs[i] = self->is_constexpr[i] ? Py_NewRef(call->slots[i].value) : NULL;
    }
    uint64_t place = hash;
    while (self->table[place & (uint64_t)(self->capacity - 1)] != NULL) {
        place++;
    }
    self->table[place & (uint64_t)(self->capacity - 1)] = entry;
    self->used++;
    return 0;
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

Plan *tw_plan_for(Dispatcher *self, Call *call, const Bound *bound, int is_fast)
{
    if (self->latest != NULL && matches(self, self->latest, call, bound, is_fast)) {
        return (Plan *)Py_NewRef((PyObject *)self->latest->plan);
    }
    uint64_t hash = hash_call(self, call, bound, is_fast);
    Plan *plan = find(self, call, bound, is_fast, hash);
    return plan != NULL ? plan : resolve_miss(self, call, bound, is_fast, hash);
}
