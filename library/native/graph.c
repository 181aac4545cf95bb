// `Graph`: launches recorded from a stream once and run again as a whole.
//
// While a thread records, its launches and new arrays that name no stream belong to the graph's own stream. The
// graph keeps every argument of its launches alive, so no address in it comes to mean other memory, and counts
// what they write when it runs. It always runs on its own stream, to which the arrays made while it was recorded
// belong; events order it with the stream that it is asked for and with those of its other arrays, as a launch's do.
#include "launcher.h"

enum { CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };

typedef struct {
    PyObject_HEAD
    int device;
    CUstream stream;
    PyObject *owner;    // of the stream
    PyObject *kept;     // a list: arguments, buffers among them
    PyObject *written;  // a list of buffers
    int foreign_count;
    CUstream foreign[MAX_FOREIGN_STREAMS];  // of its arrays, but for its own
    CUgraphExec instance;
    size_t nodes;
    int is_recording;
} Graph;

static PyTypeObject *graph_type = NULL;
static _Thread_local Graph *recording = NULL;  // held by who records
int tw_recordings = 0;  // asked first: what belongs to a thread is found by a call

static PyObject *graph_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"device", "stream", NULL};
    int index;
    PyObject *object;
    CUstream stream;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iO", names, &index, &object) ||
        tw_parse_stream(object, &stream) < 0 || tw_device(index) == NULL) {
        return NULL;
    }
    if (stream == NULL) {
        return PyErr_Format(tw_argument_error, "the legacy stream cannot be recorded; give another one");
    }
    Graph *self = (Graph *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->device = index;
    self->stream = stream;
    self->owner = Py_NewRef(object);
    self->kept = PyList_New(0);
    self->written = PyList_New(0);
    if (self->kept == NULL || self->written == NULL) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *graph_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Graph *self = (Graph *)object;
    int pushed;
    if (recording != NULL || self->is_recording || self->instance != NULL) {
        PyErr_SetString(tw_launch_error, recording != NULL ? "this thread records a graph already; end that one first"
                                                           : "this graph was recorded already; record a new one");
        return NULL;
    }
    DeviceState *device = tw_device(self->device);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    // Of this thread only: other threads may go on to allocate and to load.
    CUresult result = cu.StreamBeginCapture(self->stream, CAPTURE_THREAD_LOCAL);
    tw_leave(pushed);
    if (tw_check(result, "cuStreamBeginCapture") < 0) {
        return NULL;
    }
    self->is_recording = 1;
    recording = (Graph *)Py_NewRef(object);
    tw_recordings++;
    Py_RETURN_NONE;
}

static int instantiate(Graph *self, CUgraph graph)
{
    CUresult result = cu.GraphGetNodes(graph, NULL, &self->nodes);
    if (result == CUDA_SUCCESS) {
        result = cu.GraphInstantiateWithFlags(&self->instance, graph, 0);
    }
    (void)cu.GraphDestroy(graph);
    return tw_check(result, "cuGraphInstantiate");
}

// end(commit): the thread records no longer. Without `commit` what was recorded is dropped, without an error.
static PyObject *graph_end(PyObject *object, PyObject *arguments)
{
    Graph *self = (Graph *)object;
    int commit, pushed, status = 0;
    if (!PyArg_ParseTuple(arguments, "p", &commit)) {
        return NULL;
    }
    if (recording != self) {
        PyErr_SetString(tw_launch_error, "this thread does not record this graph");
        return NULL;
    }
    recording = NULL;
    tw_recordings--;
    self->is_recording = 0;
    DeviceState *device = tw_device(self->device);
    if (device == NULL || tw_enter(device, &pushed) < 0) {
        Py_DECREF(object);
        return NULL;
    }
    CUgraph graph = NULL;
    CUresult result = cu.StreamEndCapture(self->stream, &graph);
    if (commit) {
        status = tw_check(result, "cuStreamEndCapture");
        if (status == 0) {
            status = instantiate(self, graph);
        }
    } else if (graph != NULL) {
        (void)cu.GraphDestroy(graph);
    }
    // New arrays belong to our stream, and their memory comes from the side stream or from the list of the legacy one.
    if (status == 0) {
        status = tw_order(device, NULL, self->stream);
    }
    if (status == 0 && device->side_stream != NULL) {
        status = tw_order(device, device->side_stream, self->stream);
    }
    tw_leave(pushed);
    Py_DECREF(object);
    if (status < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

// A buffer that was freed by hand left an address in the graph that is no longer its own.
static int check_kept(const Graph *self)
{
    for (Py_ssize_t i = 0; i < PyList_Size(self->kept); i++) {
        PyObject *value = PyList_GetItem(self->kept, i);
        if (PyObject_TypeCheck(value, tw_buffer_type) && ((Buffer *)value)->storage->freed) {
            PyErr_SetString(tw_argument_error, "a buffer that this graph uses was freed; record the graph again");
            return -1;
        }
    }
    return 0;
}

// The graph waits for a stream and those of its arrays (`before`), or they for it.
static int order(const Graph *self, DeviceState *device, CUstream stream, int before)
{
    int status = 0;
    for (int i = -1; status == 0 && i < self->foreign_count; i++) {
        CUstream other = i < 0 ? stream : self->foreign[i];
        if (other == self->stream || (i >= 0 && other == stream)) {
            continue;
        }
        status = before ? tw_order(device, other, self->stream) : tw_order(device, self->stream, other);
    }
    return status;
}

static PyObject *graph_replay(PyObject *object, PyObject *arguments)
{
    Graph *self = (Graph *)object;
    PyObject *stream_object = Py_None;
    CUstream stream;
    int pushed;
    if (!PyArg_ParseTuple(arguments, "|O", &stream_object) || tw_parse_stream(stream_object, &stream) < 0) {
        return NULL;
    }
    if (self->instance == NULL) {
        PyErr_SetString(tw_launch_error, self->is_recording ? "this graph is still being recorded"
                                                            : "this graph was closed, or its recording failed");
        return NULL;
    }
    DeviceState *device = tw_device(self->device);
    if (device == NULL || check_kept(self) < 0 || tw_refuse_in_capture(stream, "running another graph") < 0 ||
        tw_enter(device, &pushed) < 0) {
        return NULL;
    }
    int status = order(self, device, stream, 1);
    if (status == 0) {
        status = tw_check(cu.GraphLaunch(self->instance, self->stream), "cuGraphLaunch");
    }
    if (status == 0) {
        status = order(self, device, stream, 0);
    }
    tw_leave(pushed);
    if (status < 0) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(self->written); i++) {
        ((Buffer *)PyList_GetItem(self->written, i))->storage->version++;
    }
    Py_RETURN_NONE;
}

// The instance may still run: the driver lets go of it when it has ended.
static void destroy_instance(Graph *self)
{
    int pushed;
    if (self->instance == NULL || !tw_driver_is_usable()) {
        return;
    }
    DeviceState *device = tw_device(self->device);
    if (device != NULL && tw_enter(device, &pushed) == 0) {
        (void)cu.GraphExecDestroy(self->instance);
        tw_leave(pushed);
    }
    self->instance = NULL;
    PyErr_Clear();
}

static PyObject *graph_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Graph *self = (Graph *)object;
    if (self->is_recording) {
        PyErr_SetString(tw_launch_error, "this graph is still being recorded");
        return NULL;
    }
    destroy_instance(self);
    PyList_SetSlice(self->kept, 0, PyList_Size(self->kept), NULL);
    PyList_SetSlice(self->written, 0, PyList_Size(self->written), NULL);
    Py_RETURN_NONE;
}

static int graph_traverse(PyObject *object, visitproc visit, void *arg)
{
    Graph *self = (Graph *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->owner);
    Py_VISIT(self->kept);
    Py_VISIT(self->written);
    return 0;
}

static int graph_clear(PyObject *object)
{
    Graph *self = (Graph *)object;
    Py_CLEAR(self->kept);
    Py_CLEAR(self->written);
    return 0;
}

static void graph_dealloc(PyObject *object)
{
    Graph *self = (Graph *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *error_type, *error, *traceback;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&error_type, &error, &traceback);
    destroy_instance(self);
    graph_clear(object);
    Py_CLEAR(self->owner);
    PyErr_Restore(error_type, error, traceback);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *get_nodes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((Graph *)self)->nodes);
}

static PyObject *get_is_ready(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Graph *)self)->instance != NULL);
}

static PyMethodDef graph_methods[] = {
    {"begin", graph_begin, METH_NOARGS, "Record from now on what this thread launches."},
    {"end", graph_end, METH_VARARGS, "end(commit): record no longer; without `commit`, drop it all."},
    {"replay", graph_replay, METH_VARARGS, "Run it, in the order of a stream (default: legacy)."},
    {"close", graph_close, METH_NOARGS, "Let go of the graph and of what it keeps alive."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef graph_properties[] = {
    {"nodes", get_nodes, NULL, "How many launches, fills and copies it runs.", NULL},
    {"is_ready", get_is_ready, NULL, "Whether it can be run.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, "Graph(device, stream): launches recorded from a stream."},
    {Py_tp_new, graph_new},
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_traverse, graph_traverse},
    {Py_tp_clear, graph_clear},
    {Py_tp_methods, graph_methods},
    {Py_tp_getset, graph_properties},
    {0, NULL},
};

static PyType_Spec graph_spec = {
    .name = "tilewright.runtime._launcher.Graph",
    .basicsize = sizeof(Graph),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = graph_slots,
};

int tw_graph_ready(PyObject *module)
{
    graph_type = (PyTypeObject *)PyType_FromSpec(&graph_spec);
    return graph_type == NULL ? -1 : PyModule_AddObjectRef(module, "Graph", (PyObject *)graph_type);
}

// ---- what launches, buffers and the pool ask

int tw_recorded_stream(int device, CUstream *stream, PyObject **owner)
{
    if (tw_recordings == 0 || recording == NULL || recording->device != device) {
        return 0;
    }
    *stream = recording->stream;
    *owner = recording->owner;
    return 1;
}

int tw_is_recorded(CUstream stream)
{
    return tw_recordings > 0 && recording != NULL && recording->stream == stream;
}

static int add_foreign(Graph *self, CUstream stream)
{
    int known = stream == self->stream;
    for (int i = 0; !known && i < self->foreign_count; i++) {
        known = self->foreign[i] == stream;
    }
    if (!known && self->foreign_count == MAX_FOREIGN_STREAMS) {
        PyErr_Format(tw_argument_error, "the arrays of this graph belong to more than %d streams", MAX_FOREIGN_STREAMS);
        return -1;
    }
    if (!known) {
        self->foreign[self->foreign_count++] = stream;
    }
    return 0;
}

int tw_record(PyObject *value, int is_written)
{
    if (PyList_Append(recording->kept, value) < 0) {
        return -1;
    }
    if (!PyObject_TypeCheck(value, tw_buffer_type)) {
        return 0;
    }
    // Another library's array says nothing of when a graph runs: that library's stream is the one to run it in.
    const Storage *storage = ((Buffer *)value)->storage;
    if (!storage->has_source && add_foreign(recording, storage->stream) < 0) {
        return -1;
    }
    return is_written ? PyList_Append(recording->written, value) : 0;
}

int tw_refuse_in_capture(CUstream stream, const char *what)
{
    int is_recording = tw_recordings > 0 && recording != NULL;
    if (!is_recording && !tw_is_capturing(stream)) {
        return 0;
    }
    PyErr_Format(tw_launch_error, "a graph is being captured %s, and %s would break the capture; do it before or after",
                 is_recording ? "by this thread" : "from this stream", what);
    return -1;
}

// Memory of arrays outlives a capture, so it is allocated beside a captured stream and not by a node of the graph.
static CUresult allocate(DeviceState *device, CUdeviceptr *address, size_t size, CUstream stream)
{
    if (!device->pools_supported) {
        return cu.MemAlloc(address, size);
    }
    int is_recorded = tw_is_recorded(stream), is_captured = !is_recorded && tw_is_capturing(stream);
    if (is_recorded || is_captured) {
        CUresult result = device->side_stream != NULL
                              ? CUDA_SUCCESS
                              : cu.StreamCreateWithPriority(&device->side_stream, STREAM_NON_BLOCKING, 0);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        stream = device->side_stream;
    }
    CUresult result = cu.MemAllocAsync(address, size, stream);
    // Another program's graph cannot be told to wait for the side stream, as ours is.
    return result == CUDA_SUCCESS && is_captured ? cu.StreamSynchronize(stream) : result;
}

// A thread that captures, whoever's capture it is, may only touch memory after saying that it knows what it does.
CUresult tw_allocate_beside(DeviceState *device, CUdeviceptr *address, size_t size, CUstream stream)
{
    int mode = CAPTURE_RELAXED;
    CUresult result = cu.ThreadExchangeStreamCaptureMode(&mode);
    if (result == CUDA_SUCCESS) {
        result = allocate(device, address, size, stream);
        (void)cu.ThreadExchangeStreamCaptureMode(&mode);
    }
    return result;
}

CUresult tw_free_beside(const DeviceState *device, CUdeviceptr address, CUstream stream)
{
    int mode = CAPTURE_RELAXED;
    CUresult result = cu.ThreadExchangeStreamCaptureMode(&mode);
    if (result == CUDA_SUCCESS) {
        result = device->pools_supported ? cu.MemFreeAsync(address, stream) : cu.MemFree(address);
        (void)cu.ThreadExchangeStreamCaptureMode(&mode);
    }
    return result;
}
