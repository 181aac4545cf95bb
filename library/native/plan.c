// `Plan`: one compiled kernel bound to a device, with what it takes to pack its parameters and launch it.
//
// Built once by Python from a LaunchAbi; a launch then runs over plain C arrays. Expressions of the ABI
// (workspace sizes, tensor map extents, the launch predicate) arrive as postfix code of a small stack
// machine; runtime/expression.py compiles them. What a launch with tensor maps evaluated is kept for the next one: most
// launches have the arguments of the one before.
#include "launcher.h"

#include <stdlib.h>

enum {
    OP_CONSTANT, OP_ARGUMENT, OP_GRID, OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_FLOOR_DIVIDE, OP_MODULO, OP_NEGATE,
    OP_LESS, OP_LESS_EQUAL, OP_EQUAL, OP_NOT_EQUAL, OP_AND, OP_OR, OP_NOT, OP_MINIMUM, OP_MAXIMUM, OP_COUNT,
};

enum { PARAMETER_POINTER, PARAMETER_SCALAR, PARAMETER_GRID, PARAMETER_TENSOR_MAP, PARAMETER_WORKSPACE };
enum { STACK_DEPTH = 32, MAX_OPERATIONS = 4096, MAX_WORKSPACES = 8, MAX_REMEMBERED = 16 };

typedef struct {
    int length;
    int64_t *code;  // pairs (operation, operand)
} Expression;

typedef struct {
    CUtensorMap latest;  // what the last launch gave the kernel
    uint32_t rank, code, swizzle_bytes, rounds_to_tf32;
    uint32_t box[5];
    Expression sizes[5], strides[5];  // outermost first, strides in elements
} TensorMapPlan;

typedef struct {
    int offset, size;  // among the kernel's parameters, in bytes
} Span;

typedef struct {
    int kind, index, zeroed;
    Expression expression;
    TensorMapPlan *tensor_map;
} Parameter;

// The arguments and the grid of the last launch whose predicate held and whose tensor maps were made.
typedef struct {
    int count;      // of the arguments that the predicate or a tensor map reads; 0 where nothing is kept
    int is_filled;  // whether there was such a launch
    unsigned char arguments[MAX_REMEMBERED];
    int64_t values[MAX_REMEMBERED];
    uint64_t grid[3];
} Latest;

struct Plan {
    PyObject_HEAD
    CUfunction function;
    int device;
    unsigned int threads, shared_bytes;
    unsigned int cluster[3];
    uint64_t persistent_programs;  // 0 for a user grid
    int waits;                     // by itself for the kernels before it: its launch may begin while they end
    int parameter_count, workspace_count, has_predicate, has_tensor_maps;
    Parameter *parameters;
    Span *spans;  // of the parameters, as many
    Expression predicate;
    Latest latest;
    int written_count;
    unsigned char written[MAX_PARAMETERS];  // arguments
    PyObject *name, *predicate_text;
    PyObject *keep_alive;  // the loaded code
    PyObject *otherwise;   // callable(is_capturing) -> the plan where the predicate does not hold, or None
    struct Plan *second;   // what it gave
};

PyTypeObject *tw_plan_type = NULL;

static int parse_expression(PyObject *tuple, Expression *expression)
{
    Py_ssize_t length = PyTuple_Size(tuple);
    if (length < 0) {
        return -1;
    }
    if (length % 2 != 0 || length / 2 > MAX_OPERATIONS) {
        PyErr_SetString(PyExc_ValueError, "an expression is a short tuple of (operation, operand) pairs");
        return -1;
    }
    expression->length = (int)(length / 2);
    expression->code = PyMem_Calloc((size_t)length + 1, sizeof(int64_t));
    if (expression->code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    // The depth is proved here, so that evaluation needs no checks.
    int depth = 0;
    for (Py_ssize_t i = 0; i < length; i += 2) {
        int64_t operation = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        int64_t operand = PyLong_AsLongLong(PyTuple_GetItem(tuple, i + 1));
        if (PyErr_Occurred()) {
            return -1;
        }
        int pops = operation <= OP_GRID ? 0 : operation == OP_NEGATE || operation == OP_NOT ? 1 : 2;
        if (operation < 0 || operation >= OP_COUNT || depth < pops || depth - pops + 1 > STACK_DEPTH ||
            (operation == OP_ARGUMENT && (operand < 0 || operand >= MAX_PARAMETERS)) ||
            (operation == OP_GRID && (operand < 0 || operand > 2))) {
            PyErr_SetString(PyExc_ValueError, "malformed expression code");
            return -1;
        }
        depth += 1 - pops;
        expression->code[i] = operation;
        expression->code[i + 1] = operand;
    }
    if (length > 0 && depth != 1) {
        PyErr_SetString(PyExc_ValueError, "expression code leaves no single value");
        return -1;
    }
    return 0;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static int evaluate(const Expression *expression, const Call *call, const uint64_t grid[3], int64_t *result)
{
    int64_t stack[STACK_DEPTH + 1];
    int top = 0, overflow = 0;
    for (int i = 0; i < expression->length; i++) {
        int64_t operation = expression->code[2 * i], operand = expression->code[2 * i + 1];
        if (operation == OP_CONSTANT) {
            stack[top++] = operand;
            continue;
        }
        if (operation == OP_GRID) {
            stack[top++] = (int64_t)grid[operand];
            continue;
        }
        if (operation == OP_ARGUMENT) {
            const Slot *slot = &call->slots[operand];
            if (operand >= call->count || !slot->is_exact) {
                PyErr_Format(tw_launch_error, "%U: argument %R is no integer below 2**63, which this kernel's "
                             "launch needs", call->kernel,
                             operand < call->count ? PyTuple_GetItem(call->names, (Py_ssize_t)operand) : Py_None);
                return -1;
            }
            stack[top++] = slot->integer;
            continue;
        }
        if (operation == OP_NEGATE || operation == OP_NOT) {
            int64_t *value = &stack[top - 1];
            if (operation == OP_NOT) {
                *value = !*value;
            } else {
                overflow |= __builtin_sub_overflow((int64_t)0, *value, value);
            }
            continue;
        }
        int64_t b = stack[--top], a = stack[top - 1], *out = &stack[top - 1];
        switch (operation) {
        case OP_ADD: overflow |= __builtin_add_overflow(a, b, out); break;
        case OP_SUBTRACT: overflow |= __builtin_sub_overflow(a, b, out); break;
        case OP_MULTIPLY: overflow |= __builtin_mul_overflow(a, b, out); break;
        case OP_FLOOR_DIVIDE:
        case OP_MODULO:
            if (b == 0 || (b == -1 && a == INT64_MIN)) {
                PyErr_Format(tw_launch_error, "%U: division by zero while the launch was sized", call->kernel);
                return -1;
            }
            *out = operation == OP_MODULO ? a - floor_divide(a, b) * b : floor_divide(a, b);
            break;
        case OP_LESS: *out = a < b; break;
        case OP_LESS_EQUAL: *out = a <= b; break;
        case OP_EQUAL: *out = a == b; break;
        case OP_NOT_EQUAL: *out = a != b; break;
        case OP_AND: *out = a && b; break;
        case OP_OR: *out = a || b; break;
        case OP_MINIMUM: *out = a < b ? a : b; break;
        default: *out = a > b ? a : b; break;
        }
    }
    if (overflow) {
        PyErr_Format(tw_launch_error, "%U: the size of the launch does not fit 64 bits", call->kernel);
        return -1;
    }
    *result = stack[0];
    return 0;
}

static int parse_tensor_map(PyObject *tuple, Parameter *parameter)
{
    PyObject *sizes, *strides, *box;
    unsigned int code, swizzle_bytes;
    int rounds_to_tf32 = 0;
    if (!PyArg_ParseTuple(tuple, "IIO!O!O!|p", &code, &swizzle_bytes, &PyTuple_Type, &sizes, &PyTuple_Type, &strides,
                          &PyTuple_Type, &box, &rounds_to_tf32)) {
        return -1;
    }
    Py_ssize_t rank = PyTuple_Size(sizes);
    if (rank < 1 || rank > 5 || PyTuple_Size(strides) != rank || PyTuple_Size(box) != rank || code >= CODE_COUNT) {
        PyErr_SetString(PyExc_ValueError, "a tensor map has 1 to 5 dimensions, each with size, stride and box");
        return -1;
    }
    void *memory;
    if (posix_memalign(&memory, _Alignof(TensorMapPlan), sizeof(TensorMapPlan)) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    TensorMapPlan *map = memset(memory, 0, sizeof *map);
    parameter->tensor_map = map;
    map->rank = (uint32_t)rank;
    map->code = code;
    map->swizzle_bytes = swizzle_bytes;
    map->rounds_to_tf32 = (uint32_t)rounds_to_tf32;
    for (Py_ssize_t i = 0; i < rank; i++) {
        map->box[i] = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(box, i));
        if (PyErr_Occurred() || parse_expression(PyTuple_GetItem(sizes, i), &map->sizes[i]) < 0 ||
            parse_expression(PyTuple_GetItem(strides, i), &map->strides[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int parse_parameter(PyObject *tuple, Parameter *parameter, Span *span)
{
    PyObject *extra;
    if (!PyArg_ParseTuple(tuple, "iiiipO!", &parameter->kind, &parameter->index, &span->offset, &span->size,
                          &parameter->zeroed, &PyTuple_Type, &extra)) {
        return -1;
    }
    int most = parameter->kind == PARAMETER_TENSOR_MAP ? (int)sizeof(CUtensorMap) : 8;
    if (parameter->kind < PARAMETER_POINTER || parameter->kind > PARAMETER_WORKSPACE || parameter->index < 0 ||
        parameter->index >= MAX_PARAMETERS || span->offset < 0 || span->size < 1 || span->size > most ||
        (parameter->kind == PARAMETER_GRID && parameter->index > 2) || span->offset + span->size > MAX_PACKED_BYTES) {
        PyErr_SetString(PyExc_ValueError, "malformed launch parameter");
        return -1;
    }
    if (parameter->kind == PARAMETER_TENSOR_MAP) {
        return parse_tensor_map(extra, parameter);
    }
    return parse_expression(extra, &parameter->expression);
}

static void read_by(Plan *plan, int argument)
{
    Latest *latest = &plan->latest;
    for (int i = 0; i < latest->count; i++) {
        if (latest->arguments[i] == argument) {
            return;
        }
    }
    if (latest->count >= 0 && latest->count < MAX_REMEMBERED) {
        latest->arguments[latest->count++] = (unsigned char)argument;
    } else {
        latest->count = -1;  // too many to be compared at every launch
    }
}

static void read_by_expression(Plan *plan, const Expression *expression)
{
    for (int i = 0; i < expression->length; i++) {
        if (expression->code[2 * i] == OP_ARGUMENT) {
            read_by(plan, (int)expression->code[2 * i + 1]);
        }
    }
}

// Find what the tensor maps of a plan follow from; one without has nothing worth remembering.
static void find_remembered(Plan *plan)
{
    for (int i = 0; i < plan->parameter_count; i++) {
        const TensorMapPlan *map = plan->parameters[i].tensor_map;
        if (map == NULL) {
            continue;
        }
        plan->has_tensor_maps = 1;
        read_by(plan, plan->parameters[i].index);
        for (uint32_t d = 0; d < map->rank; d++) {
            read_by_expression(plan, &map->sizes[d]);
            read_by_expression(plan, &map->strides[d]);
        }
    }
    read_by_expression(plan, &plan->predicate);
    if (!plan->has_tensor_maps || plan->latest.count < 0) {
        plan->latest.count = 0;
    }
}

static PyObject *plan_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "function", "device", "threads", "shared_bytes", "cluster",
                            "persistent_programs", "waits", "parameters", "writes", "predicate", "predicate_text",
                            "keep_alive", "otherwise", NULL};
    PyObject *name, *parameters, *writes, *predicate, *predicate_text, *keep_alive, *otherwise = Py_None;
    unsigned long long function, persistent;
    int device, waits;
    unsigned int threads, shared_bytes, cluster[3];
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "UKiII(III)KpO!O!O!UO|O", names, &name, &function, &device,
                                     &threads, &shared_bytes, &cluster[0], &cluster[1], &cluster[2], &persistent, &waits,
                                     &PyTuple_Type, &parameters, &PyTuple_Type, &writes, &PyTuple_Type, &predicate,
                                     &predicate_text, &keep_alive, &otherwise)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(parameters);
    if (count > MAX_PARAMETERS || cluster[0] == 0 || cluster[1] == 0 || cluster[2] == 0) {
        PyErr_SetString(PyExc_ValueError, "too many parameters, or an empty cluster");
        return NULL;
    }
    Plan *self = (Plan *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->function = (CUfunction)(uintptr_t)function;
    self->device = device;
    self->threads = threads;
    self->shared_bytes = shared_bytes;
    memcpy(self->cluster, cluster, sizeof cluster);
    self->persistent_programs = persistent;
    self->waits = waits;
    self->name = Py_NewRef(name);
    self->predicate_text = Py_NewRef(predicate_text);
    self->keep_alive = Py_NewRef(keep_alive);
    self->otherwise = Py_NewRef(otherwise);
    self->parameters = PyMem_Calloc((size_t)count + 1, sizeof(Parameter));
    self->spans = PyMem_Calloc((size_t)count + 1, sizeof(Span));
    if (self->parameters == NULL || self->spans == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Parameter *parameter = &self->parameters[i];
        self->parameter_count++;
        if (parse_parameter(PyTuple_GetItem(parameters, i), parameter, &self->spans[i]) < 0) {
            Py_DECREF(self);
            return NULL;
        }
        self->workspace_count += parameter->kind == PARAMETER_WORKSPACE;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(writes); i++) {
        long index = PyLong_AsLong(PyTuple_GetItem(writes, i));
        if (index < 0 || index >= MAX_PARAMETERS || self->written_count == MAX_PARAMETERS) {
            PyErr_SetString(PyExc_ValueError, "malformed list of written arguments");
            Py_DECREF(self);
            return NULL;
        }
        self->written[self->written_count++] = (unsigned char)index;
    }
    if (self->workspace_count > MAX_WORKSPACES || parse_expression(predicate, &self->predicate) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "too many workspaces");
        }
        Py_DECREF(self);
        return NULL;
    }
    self->has_predicate = self->predicate.length > 0;
    find_remembered(self);
    return (PyObject *)self;
}

static void plan_dealloc(PyObject *object)
{
    Plan *self = (Plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < self->parameter_count; i++) {
        Parameter *parameter = &self->parameters[i];
        PyMem_Free(parameter->expression.code);
        for (int d = 0; parameter->tensor_map != NULL && d < 5; d++) {
            PyMem_Free(parameter->tensor_map->sizes[d].code);
            PyMem_Free(parameter->tensor_map->strides[d].code);
        }
        free(parameter->tensor_map);
    }
    PyMem_Free(self->parameters);
    PyMem_Free(self->spans);
    PyMem_Free(self->predicate.code);
    Py_XDECREF(self->name);
    Py_XDECREF(self->predicate_text);
    Py_XDECREF(self->keep_alive);
    Py_XDECREF(self->otherwise);
    Py_XDECREF((PyObject *)self->second);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "A compiled kernel bound to a device, ready to be launched."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "tilewright.runtime._launcher.Plan",
    .basicsize = sizeof(Plan),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = plan_slots,
};

int tw_plan_ready(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&plan_spec);
    if (type == NULL) {
        return -1;
    }
    tw_plan_type = (PyTypeObject *)type;
    return PyModule_AddObjectRef(module, "Plan", type);
}

int tw_plan_device(const Plan *plan)
{
    return plan->device;
}

// Whether the predicate holds and the tensor maps are those of the last launch. Pointers and integers are compared as
// numbers, which are what both are made from; anything else is evaluated, and refused there.
static int is_latest(const Plan *plan, const Call *call, const uint64_t grid[3])
{
    const Latest *latest = &plan->latest;
    if (!latest->is_filled) {
        return 0;
    }
    uint64_t differences = 0;
    for (int i = 0; i < latest->count; i++) {
        const Slot *slot = &call->slots[latest->arguments[i]];
        differences |= (uint64_t)(slot->integer ^ latest->values[i]) | !slot->is_exact;
    }
    return (differences | (grid[0] ^ latest->grid[0]) | (grid[1] ^ latest->grid[1]) | (grid[2] ^ latest->grid[2])) == 0;
}

static void remember(Plan *plan, const Call *call, const uint64_t grid[3])
{
    Latest *latest = &plan->latest;
    int is_whole = latest->count > 0;
    for (int i = 0; i < latest->count; i++) {
        int argument = latest->arguments[i];
        is_whole = is_whole && argument < call->count && call->slots[argument].is_exact;
        latest->values[i] = is_whole ? call->slots[argument].integer : 0;
    }
    memcpy(latest->grid, grid, sizeof latest->grid);
    latest->is_filled = is_whole;
}

static int make_tensor_map(const Plan *plan, const Parameter *parameter, const Call *call, const uint64_t grid[3])
{
    TensorMapPlan *map = parameter->tensor_map;
    TensorMapKey key;
    memset(&key, 0, sizeof key);
    key.address = call->slots[parameter->index].bits;
    key.rank = map->rank;
    key.code = map->code;
    key.swizzle_bytes = map->swizzle_bytes;
    key.rounds_to_tf32 = map->rounds_to_tf32;
    key.device = (uint32_t)plan->device;
    for (uint32_t i = 0; i < map->rank; i++) {
        uint32_t inner = map->rank - 1 - i;
        int64_t size, stride;
        if (evaluate(&map->sizes[i], call, grid, &size) < 0 || evaluate(&map->strides[i], call, grid, &stride) < 0) {
            return -1;
        }
        key.sizes[inner] = (uint64_t)size;
        key.box[inner] = map->box[i];
        if (inner > 0) {
            key.strides[inner - 1] = (uint64_t)stride * tw_code_bytes[map->code];
        } else if (stride != 1) {
            PyErr_Format(tw_launch_error, "%U: the last dimension of %R must have stride 1 for a tensor map, not %lld",
                         plan->name, PyTuple_GetItem(call->names, parameter->index), (long long)stride);
            return -1;
        }
    }
    // The stride of an axis of one element is of no account, but the driver looks at it: that of a broadcast
    // batch of one, for example, is 0.
    for (uint32_t i = 1; i < key.rank; i++) {
        if (key.sizes[i] == 1) {
            uint64_t row = (key.sizes[0] * tw_code_bytes[map->code] + 15) / 16 * 16;
            key.strides[i - 1] = i == 1 ? row : key.strides[i - 2];
        }
    }
    return tw_tensor_map(&key, &map->latest);
}

static int make_tensor_maps(Plan *plan, const Call *call, const uint64_t grid[3])
{
    plan->latest.is_filled = 0;
    for (int i = 0; i < plan->parameter_count; i++) {
        const Parameter *parameter = &plan->parameters[i];
        if (parameter->kind == PARAMETER_TENSOR_MAP && make_tensor_map(plan, parameter, call, grid) < 0) {
            return -1;
        }
    }
    remember(plan, call, grid);
    return 0;
}

typedef struct {
    int count;
    CUdeviceptr address[MAX_WORKSPACES];  // 0 for one of no bytes
    size_t capacity[MAX_WORKSPACES];
} Workspaces;

static int allocate_workspace(const Plan *plan, const Parameter *parameter, const Call *call, const uint64_t grid[3],
                              DeviceState *device, int capturing, Workspaces *workspaces)
{
    int64_t size;
    if (evaluate(&parameter->expression, call, grid, &size) < 0) {
        return -1;
    }
    if (size < 0) {
        PyErr_Format(tw_launch_error, "%U: a workspace of %lld bytes was asked for", plan->name, (long long)size);
        return -1;
    }
    CUdeviceptr *address = &workspaces->address[workspaces->count];
    size_t *capacity = &workspaces->capacity[workspaces->count++];
    *address = 0;
    if (size == 0) {
        return 0;
    }
    // Inside a capture the memory belongs to the graph and may not come from our free list.
    int status = capturing ? tw_check(cu.MemAllocAsync == NULL ? 801 : cu.MemAllocAsync(address, (size_t)size,
                                                                                          call->stream),
                                      "cuMemAllocAsync")
                           : tw_pool_allocate(device, plan->device, (size_t)size, call->stream, 0, address, capacity);
    if (status == 0 && parameter->zeroed) {
        status = tw_check(cu.MemsetD8Async(*address, 0, (size_t)size, call->stream), "cuMemsetD8Async");
    }
    return status;
}

static void release_workspaces(const Plan *plan, const Call *call, int capturing, const Workspaces *workspaces)
{
    for (int i = 0; i < workspaces->count; i++) {
        if (workspaces->address[i] != 0 && capturing) {
            (void)cu.MemFreeAsync(workspaces->address[i], call->stream);
        } else if (workspaces->address[i] != 0) {
            tw_pool_release(plan->device, workspaces->address[i], workspaces->capacity[i], call->stream, 0);
        }
    }
}

// Get everything that the kernel reads in place, and say where: the driver copies each parameter from there. A scalar
// or an extent is a word of which it takes the low bytes, which on our processors come first.
static int place_parameters(Plan *plan, const Call *call, const uint64_t grid[3], int is_known, DeviceState *device,
                            int capturing, Workspaces *workspaces, void **places)
{
    for (int i = 0; workspaces->count < plan->workspace_count && i < plan->parameter_count; i++) {
        const Parameter *parameter = &plan->parameters[i];
        if (parameter->kind == PARAMETER_WORKSPACE &&
            allocate_workspace(plan, parameter, call, grid, device, capturing, workspaces) < 0) {
            return -1;
        }
    }
    // After the workspaces: to get one may wait, and other threads launch meanwhile.
    is_known = is_known && workspaces->count == 0;
    if (plan->has_tensor_maps && !is_known && !is_latest(plan, call, grid) && make_tensor_maps(plan, call, grid) < 0) {
        return -1;
    }
    int workspace = 0;
    for (int i = 0; i < plan->parameter_count; i++) {
        const Parameter *parameter = &plan->parameters[i];
        switch (parameter->kind) {
        case PARAMETER_POINTER:
        case PARAMETER_SCALAR: places[i] = (void *)&call->slots[parameter->index].bits; break;
        case PARAMETER_GRID: places[i] = (void *)&grid[parameter->index]; break;
        case PARAMETER_TENSOR_MAP: places[i] = &parameter->tensor_map->latest; break;
        default: places[i] = &workspaces->address[workspace++];
        }
    }
    return 0;
}

// A persistent kernel gets as many programs as are resident at once and walks the logical grid itself.
static int physical_grid(const Plan *plan, const uint64_t grid[3], CUlaunchConfig *config)
{
    uint64_t x = grid[0], y = grid[1], z = grid[2];
    if (plan->persistent_programs > 0) {
        unsigned __int128 programs = (unsigned __int128)x * y * z;
        x = programs < plan->persistent_programs ? (uint64_t)programs : plan->persistent_programs;
        y = z = 1;
    }
    // A program of a clustered kernel is a whole cluster; the driver counts thread blocks.
    uint64_t blocks_x = x * plan->cluster[0], blocks_y = y * plan->cluster[1], blocks_z = z * plan->cluster[2];
    if (x > INT32_MAX || y > UINT16_MAX || z > UINT16_MAX || blocks_x > INT32_MAX || blocks_y > UINT16_MAX ||
        blocks_z > UINT16_MAX) {
        PyErr_Format(tw_launch_error, "%U: a grid of (%llu, %llu, %llu) programs is too large; the limits are "
                     "(2**31 - 1, 65535, 65535)", plan->name, (unsigned long long)x, (unsigned long long)y,
                     (unsigned long long)z);
        return -1;
    }
    config->grid_x = (unsigned int)blocks_x;
    config->grid_y = (unsigned int)blocks_y;
    config->grid_z = (unsigned int)blocks_z;
    return 0;
}

static Plan *second_choice(Plan *plan, const Call *call);

// Give the plan that serves these arguments: the first, or where its predicate does not hold its second choice. And
// whether its tensor maps are those of its last launch. A predicate that cannot be computed, as it does not fit 64 bits,
// does not hold.
static Plan *suited(Plan *plan, const Call *call, const uint64_t grid[3], int *is_known)
{
    int64_t holds = 1;
    *is_known = is_latest(plan, call, grid);
    if (!*is_known && plan->has_predicate && evaluate(&plan->predicate, call, grid, &holds) < 0) {
        if (!PyErr_ExceptionMatches(tw_launch_error)) {
            return NULL;
        }
        PyErr_Clear();
        holds = 0;
    }
    if (holds) {
        return plan;
    }
    plan = second_choice(plan, call);
    return plan == NULL ? NULL : suited(plan, call, grid, is_known);
}

static Plan *second_choice(Plan *plan, const Call *call)
{
    if (plan->otherwise == Py_None) {
        PyErr_Format(tw_launch_error, "%U: this kernel may only be launched when `%U`, and these arguments do not "
                     "fulfil it", plan->name, plan->predicate_text);
        return NULL;
    }
    if (plan->second == NULL) {
        PyObject *found = PyObject_CallFunction(plan->otherwise, "i", tw_is_capturing(call->stream));
        if (found == NULL) {
            return NULL;
        }
        if (!PyObject_TypeCheck(found, tw_plan_type) || ((Plan *)found)->device != plan->device) {
            Py_DECREF(found);
            PyErr_SetString(PyExc_RuntimeError, "otherwise() gave no plan for this device");
            return NULL;
        }
        // The call may have run other threads, and one of them may have been here.
        if (plan->second == NULL) {
            plan->second = (Plan *)found;
        } else {
            Py_DECREF(found);
        }
    }
    return plan->second;
}

static int check_writes(const Plan *plan, const Call *call)
{
    for (int i = 0; i < plan->written_count; i++) {
        int index = plan->written[i];
        if (index < call->count && call->slots[index].read_only) {
            PyErr_Format(tw_argument_error, "%U: argument %R is read-only, and the kernel writes to it", plan->name,
                         PyTuple_GetItem(call->names, index));
            return -1;
        }
    }
    return 0;
}

// Work on the streams of the arguments comes before the launch (`before`) or waits for it.
static int order_foreign(const Call *call, DeviceState *device, int capturing, int before)
{
    for (int i = 0; i < call->foreign_count; i++) {
        CUstream other = call->foreign[i];
        // Waiting from a capture on a stream outside it would break the capture: there, the order is the
        // capturing program's own affair.
        if (other == call->stream || (capturing && !tw_is_capturing(other))) {
            continue;
        }
        if ((before ? tw_order(device, other, call->stream) : tw_order(device, call->stream, other)) < 0) {
            return -1;
        }
    }
    return 0;
}

static int check_launch(const Plan *plan, const CUlaunchConfig *config, CUresult result, const char *call)
{
    if (result != CUDA_ERROR_INVALID_HANDLE || config->stream == NULL) {
        return tw_check(result, call);
    }
    PyErr_Format(tw_launch_error, "%U: the driver does not take stream %p for a launch on device %d: it is closed, or of "
                 "another device", plan->name, (void *)config->stream, plan->device);
    return -1;
}

static int call_driver(const Plan *plan, CUlaunchConfig *config, void **parameters)
{
    int is_clustered = plan->cluster[0] * plan->cluster[1] * plan->cluster[2] != 1;
    // In a graph the edge would be of a kind that older drivers do not capture.
    int may_overlap = plan->waits && cu.LaunchKernelEx != NULL && !tw_is_capturing(config->stream);
    if (!is_clustered && !may_overlap) {
        CUresult result = cu.LaunchKernel(plan->function, config->grid_x, config->grid_y, config->grid_z,
                                          config->block_x, 1, 1, config->shared_bytes, config->stream, parameters, NULL);
        return result == CUDA_SUCCESS ? 0 : check_launch(plan, config, result, "cuLaunchKernel");
    }
    if (cu.LaunchKernelEx == NULL) {
        PyErr_SetString(tw_launch_error, "the CUDA driver has no cuLaunchKernelEx; r525 or newer is needed");
        return -1;
    }
    CUlaunchAttribute attributes[2];
    config->attributes = attributes;
    if (is_clustered) {
        CUlaunchAttribute *attribute = &attributes[config->attribute_count++];
        attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.cluster.x = plan->cluster[0];
        attribute->value.cluster.y = plan->cluster[1];
        attribute->value.cluster.z = plan->cluster[2];
    }
    if (may_overlap) {
        CUlaunchAttribute *attribute = &attributes[config->attribute_count++];
        attribute->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute->value.allowed = 1;
    }
    CUresult result = cu.LaunchKernelEx(config, plan->function, parameters, NULL);
    return result == CUDA_SUCCESS ? 0 : check_launch(plan, config, result, "cuLaunchKernelEx");
}

static int launch_in_context(Plan *plan, Call *call, const uint64_t grid[3], int is_known, DeviceState *device)
{
    // Field by field: clearing a whole struct costs more than all that a launch writes.
    CUlaunchConfig config;
    config.block_x = plan->threads;
    config.block_y = config.block_z = 1;
    config.shared_bytes = plan->shared_bytes;
    config.stream = call->stream;
    config.attributes = NULL;
    config.attribute_count = 0;
    Workspaces workspaces;
    workspaces.count = 0;
    if (physical_grid(plan, grid, &config) < 0) {
        return -1;
    }
    int has_foreign = call->foreign_count > 1 || (call->foreign_count == 1 && call->foreign[0] != call->stream);
    int capturing = (has_foreign || plan->workspace_count > 0) && tw_is_capturing(call->stream);
    // A pointer for each, not a packed buffer: given that, the driver puts tensor maps at an address that the copy
    // engine refuses (error 715, driver 580). It reads as many as the kernel has; what follows is for the driver of
    // the tests.
    void *places[MAX_PARAMETERS + 2];
    int status = place_parameters(plan, call, grid, is_known, device, capturing, &workspaces, places);
    if (status == 0 && has_foreign) {
        status = order_foreign(call, device, capturing, 1);
    }
    if (status == 0) {
        places[plan->parameter_count] = NULL;
        places[plan->parameter_count + 1] = plan->spans;
        status = call_driver(plan, &config, places);
    }
    if (status == 0 && has_foreign) {
        status = order_foreign(call, device, capturing, 0);
    }
    release_workspaces(plan, call, capturing, &workspaces);
    return status;
}

static int keep_arguments(const Plan *plan, const Call *call)
{
    for (int i = 0; i < call->count; i++) {
        const Slot *slot = &call->slots[i];
        if (slot->kind == SLOT_POINTER &&
            tw_record(slot->value, memchr(plan->written, i, (size_t)plan->written_count) != NULL) < 0) {
            return -1;
        }
    }
    for (int i = 0; i < call->held_count; i++) {
        if (tw_record(call->held[i], 0) < 0) {
            return -1;
        }
    }
    return 0;
}

int tw_plan_launch(Plan *plan, Call *call, const uint64_t grid[3])
{
    int is_known;
    plan = suited(plan, call, grid, &is_known);
    if (plan == NULL || check_writes(plan, call) < 0) {
        return -1;
    }
    DeviceState *device = tw_device(plan->device);
    int pushed;
    if (device == NULL) {
        return -1;
    }
    if (tw_enter(device, &pushed) < 0) {
        return -1;
    }
    int status = launch_in_context(plan, call, grid, is_known, device);
    tw_leave(pushed);
    if (status == 0) {
        for (int i = 0; i < plan->written_count; i++) {
            int index = plan->written[i];
            if (index < call->count && call->slots[index].buffer != NULL) {
                call->slots[index].buffer->storage->version++;
            }
        }
        if (tw_is_recorded(call->stream)) {
            status = keep_arguments(plan, call);
        }
    }
    return status;
}
