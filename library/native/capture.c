// Graphs that other programs capture, as far as memory of ours is in them.
//
// Such a graph may run at any time after its capture, so what was handed out in it is handed out to nobody else until the
// graph, and all that was made from it, is gone and runs no more. The driver tells: graphs hold references to an object of
// ours, wherever they are copied, and with the last of them the object's destructor is called. It is called by a thread
// of the driver's that may call neither the driver nor Python, so it leaves a mark for who next asks for memory.
#include "launcher.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { NO_DESTRUCTOR_SYNC = 1, MOVE = 1 };  // flags of cuUserObjectCreate and cuGraphRetainUserObject

typedef struct Watched {
    struct Watched *next;
    uint64_t capture;
    size_t blocks;  // of memory, handed out or kept for the graph
    int is_known_gone;
    atomic_int is_gone;
} Watched;

static Watched *watched = NULL;
static atomic_int marks = 0;  // graphs that are gone without having been looked at

static void leave_mark(void *object)
{
    atomic_store(&((Watched *)object)->is_gone, 1);
    atomic_fetch_add(&marks, 1);
}

static Watched **place_of(uint64_t capture)
{
    Watched **place = &watched;
    while (*place != NULL && (*place)->capture != capture) {
        place = &(*place)->next;
    }
    return place;
}

static void forget(Watched **place)
{
    Watched *old = *place;
    *place = old->next;
    free(old);
}

// Where the driver does not tell, memory stays the graph's for good.
static void watch(uint64_t capture, CUgraph graph)
{
    if (graph == NULL || cu.UserObjectCreate == NULL || cu.GraphRetainUserObject == NULL) {
        return;
    }
    CUuserObject object = NULL;
    Watched *made = calloc(1, sizeof *made);  // not Python's memory: a thread without it writes here
    if (made == NULL || cu.UserObjectCreate(&object, made, leave_mark, 1, NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
        free(made);
        return;
    }
    // A reference that the graph does not take stays ours, and its object is never destroyed.
    if (cu.GraphRetainUserObject(graph, object, 1, MOVE) == CUDA_SUCCESS) {
        made->capture = capture;
        made->next = watched;
        watched = made;
    }
}

uint64_t tw_foreign_capture(CUstream stream)
{
    int status;
    uint64_t number = 0;
    CUgraph graph = NULL;
    if (!tw_is_capturing(stream) || tw_is_recorded(stream)) {
        return 0;
    }
    // Numbers are never used again, and an unknown one is that of no other capture.
    CUresult result = cu.StreamGetCaptureInfo == NULL
                          ? CUDA_ERROR_NOT_FOUND
                          : cu.StreamGetCaptureInfo(stream, &status, &number, &graph, NULL, NULL);
    if (result != CUDA_SUCCESS) {
        return UNKNOWN_CAPTURE;
    }
    if (*place_of(number + 1) == NULL) {
        watch(number + 1, graph);
    }
    return number + 1;
}

int tw_is_capture_gone(uint64_t capture)
{
    const Watched *found = *place_of(capture);
    return found != NULL && found->is_known_gone;
}

uint64_t tw_next_gone(void)
{
    Watched **place = &watched;
    while (atomic_load(&marks) > 0 && *place != NULL) {
        Watched *found = *place;
        if (found->is_known_gone || !atomic_load(&found->is_gone)) {
            place = &found->next;
            continue;
        }
        atomic_fetch_sub(&marks, 1);
        found->is_known_gone = 1;
        if (found->blocks > 0) {
            return found->capture;
        }
        forget(place);
    }
    return 0;
}

void tw_count_captured(uint64_t capture)
{
    Watched *found = *place_of(capture);
    if (found != NULL) {
        found->blocks++;
    }
}

void tw_discount_captured(uint64_t capture)
{
    Watched **place = place_of(capture);
    if (*place != NULL && --(*place)->blocks == 0 && (*place)->is_known_gone) {
        forget(place);
    }
}
