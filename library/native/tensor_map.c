// TMA tensor maps, encoded by the driver and kept in a least-recently-used cache.
//
// The key is made of fields alone and starts as zeros, so padding never enters the comparison.
#include "launcher.h"

enum { SETS = 64, WAYS = 4 };

typedef struct {
    TensorMapKey key;
    CUtensorMap map;
    uint64_t used_at;
} CachedMap;

static CachedMap cache[SETS][WAYS];
static uint64_t clock_ticks = 0, hits = 0, misses = 0;

static int data_type(uint32_t code, uint32_t rounds_to_tf32)
{
    // CUtensorMapDataType; signed narrow integers and 8-bit floats have none of their own, which are only copied. Of
    // wider ones TMA computes sums and extrema by their type, and f32 it may round to tf32 (to nearest even).
    enum { TFLOAT32 = 11 };
    static const signed char table[CODE_COUNT] = {0, 0, 1, 3, 5, 0, 1, 2, 4, 6, 9, 7, 8, 0, 0};
    return rounds_to_tf32 ? TFLOAT32 : table[code];
}

static int swizzle_mode(uint32_t bytes)
{
    return bytes == 32 ? 1 : bytes == 64 ? 2 : bytes == 128 ? 3 : 0;
}

static uint64_t hash_key(const TensorMapKey *key)
{
    uint64_t hash = 0xcbf29ce484222325ULL, word;
    for (size_t i = 0; i + sizeof word <= sizeof *key; i += sizeof word) {
        memcpy(&word, (const char *)key + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3ULL;
    }
    return hash ^ hash >> 29;
}

static int encode(const TensorMapKey *key, CUtensorMap *map)
{
    static const uint32_t element_strides[5] = {1, 1, 1, 1, 1};
    enum { INTERLEAVE_NONE = 0, L2_PROMOTE_256B = 3, OUT_OF_BOUNDS_ZEROS = 0 };
    if (cu.TensorMapEncodeTiled == NULL) {
        PyErr_SetString(tw_launch_error, "the CUDA driver has no tensor maps (cuTensorMapEncodeTiled, CUDA 12.0)");
        return -1;
    }
    CUresult result = cu.TensorMapEncodeTiled(
        map, data_type(key->code, key->rounds_to_tf32), key->rank, (void *)(uintptr_t)key->address, key->sizes, key->strides, key->box,
        element_strides, INTERLEAVE_NONE, swizzle_mode(key->swizzle_bytes), L2_PROMOTE_256B, OUT_OF_BOUNDS_ZEROS);
    return tw_check(result, "cuTensorMapEncodeTiled");
}

int tw_tensor_map(const TensorMapKey *key, CUtensorMap *map)
{
    CachedMap *set = cache[hash_key(key) % SETS];
    CachedMap *oldest = &set[0];
    for (int way = 0; way < WAYS; way++) {
        if (set[way].used_at != 0 && memcmp(&set[way].key, key, sizeof *key) == 0) {
            set[way].used_at = ++clock_ticks;
            hits++;
            *map = set[way].map;
            return 0;
        }
        if (set[way].used_at < oldest->used_at) {
            oldest = &set[way];
        }
    }
    misses++;
    CUtensorMap fresh;
    if (encode(key, &fresh) < 0) {
        return -1;
    }
    *oldest = (CachedMap){.key = *key, .map = fresh, .used_at = ++clock_ticks};
    // Assigning a struct need not copy its padding, and the comparison above reads all bytes.
    memcpy(&oldest->key, key, sizeof *key);
    *map = fresh;
    return 0;
}

PyObject *tw_tensor_map_statistics(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("{s:K,s:K}", "hits", (unsigned long long)hits, "misses", (unsigned long long)misses);
}
