// `Dispatcher`: the launches of one kernel. What binds arguments to its parameters, what finds plans for them, and
// what runs launches that were prepared share this.
#ifndef TILEWRIGHT_DISPATCH_H
#define TILEWRIGHT_DISPATCH_H

#include "launcher.h"

enum { DEFAULT_NUM_WARPS = 4, DEFAULT_NUM_STAGES = 3 };

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
    uint64_t version;  // of the table: a plan that was found in another one is not asked for again
    PyObject *latest_grid, *latest_function;  // what the last grid of plain ints gave, or NULL
} Dispatcher;

typedef struct {
    int num_warps, num_stages;
    PyObject *values[MAX_PARAMETERS];  // borrowed
} Bound;

// Whether the fast specialization may be launched with an argument: restates abi.signature.specialize.
static inline int tw_slot_allows_fast(const Dispatcher *self, const Slot *slot, int index)
{
    if (slot->kind == SLOT_POINTER) {
        return slot->bits % FAST_DIVISOR == 0;
    }
    if (slot->kind != SLOT_SCALAR || slot->code == CODE_I1 || slot->code >= CODE_F16) {
        return 1;
    }
    if (!slot->is_exact) {
        return 0;
    }
    if (self->unit[index]) {
        return slot->integer == 1;
    }
    return slot->integer >= -INT32_MAX && slot->integer <= INT32_MAX &&
           !(self->divisible[index] && slot->integer % FAST_DIVISOR != 0);
}

// ---- plans.c
void tw_forget_plans(Dispatcher *self);
Plan *tw_plan_for(Dispatcher *self, Call *call, const Bound *bound, int is_fast);  // a new reference

// ---- dispatch.c
void tw_begin_call(Call *call, const Dispatcher *self);
void tw_end_call(Call *call);
int tw_check_sides(const Dispatcher *self, const Call *call);
int tw_find_device(Call *call);  // and the stream; what the driver must know is known then
int tw_interpret(const Dispatcher *self, const Bound *bound, const uint64_t grid[3]);

// ---- prepared.c
int tw_prepared_ready(void);
PyObject *tw_prepare(PyObject *dispatcher, PyObject *arguments);

#endif
