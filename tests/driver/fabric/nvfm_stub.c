/* Stands in for libnvfm: the functions and structures of nv_fm_agent.h, over a text file beside the socket.
 *
 * The file's first line says whether the mode is shared, whether the fabric manager waits to be told what is
 * active, and whether it tells identities; each other line is a partition: id, active, the number of GPUs, and
 * their physical ids. With a file <socket>.hang beside it no call returns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, BADPARAM = -1, NOT_SUPPORTED = -3, UNINITIALIZED = -4, VERSION_MISMATCH = -6, IN_USE = -7,
       NOT_CONFIGURED = -8, CONNECTION_NOT_VALID = -9 };

#define VERSIONED(type, number) ((unsigned int)(sizeof(type) | ((number) << 24)))

typedef struct { unsigned int version; char address[256]; unsigned int timeoutMs, isUnixSocket; } params_t;
typedef struct {
    unsigned int physicalId; char uuid[80]; char pci[32]; unsigned int available, maximum, rate;
} gpu_t;
typedef struct { unsigned int id, isActive, numGpus; gpu_t gpus[16]; } partition_t;
typedef struct { unsigned int version, count, maximum; partition_t partitions[64]; } list_t;
typedef struct { unsigned int version, count, ids[64]; } activated_t;

static int initialized, shared, waits, identities;
static char path[300];
static list_t state;

static int load(void) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return CONNECTION_NOT_VALID;
    memset(&state, 0, sizeof state);
    if (fscanf(file, "%d %d %d", &shared, &waits, &identities) != 3) return CONNECTION_NOT_VALID;
    partition_t *one = state.partitions;
    while (fscanf(file, "%u %u %u", &one->id, &one->isActive, &one->numGpus) == 3) {
        for (unsigned int gpu = 0; gpu < one->numGpus; gpu++) {
            gpu_t *into = &one->gpus[gpu];
            if (fscanf(file, "%u", &into->physicalId) != 1) return CONNECTION_NOT_VALID;
            snprintf(into->pci, sizeof into->pci, identities ? "00000000:%02X:00.0" : "00000000:00:00.0",
                     0x10 + into->physicalId);
            if (identities) snprintf(into->uuid, sizeof into->uuid, "GPU-%u", into->physicalId);
            into->available = into->maximum = 18;
            into->rate = 26562;
        }
        one++;
    }
    fclose(file);
    state.count = (unsigned int)(one - state.partitions);
    state.maximum = 64;
    return OK;
}

static void save(void) {
    FILE *file = fopen(path, "w");
    fprintf(file, "%d %d %d\n", shared, waits, identities);
    for (unsigned int i = 0; i < state.count; i++) {
        partition_t *one = &state.partitions[i];
        fprintf(file, "%u %u %u", one->id, one->isActive, one->numGpus);
        for (unsigned int gpu = 0; gpu < one->numGpus; gpu++) fprintf(file, " %u", one->gpus[gpu].physicalId);
        fprintf(file, "\n");
    }
    fclose(file);
}

static int ready(void *handle) {
    if (!initialized) return UNINITIALIZED;
    if (handle != &state) return BADPARAM;
    int code = load();
    if (code != OK) return code;
    return shared ? OK : NOT_SUPPORTED;
}

static partition_t *find(unsigned int id) {
    for (unsigned int i = 0; i < state.count; i++)
        if (state.partitions[i].id == id) return &state.partitions[i];
    return NULL;
}

static int overlap(const partition_t *one, const partition_t *other) {
    for (unsigned int i = 0; i < one->numGpus; i++)
        for (unsigned int j = 0; j < other->numGpus; j++)
            if (one->gpus[i].physicalId == other->gpus[j].physicalId) return 1;
    return 0;
}

int fmLibInit(void) { if (initialized) return IN_USE; initialized = 1; return OK; }
int fmLibShutdown(void) { if (!initialized) return UNINITIALIZED; initialized = 0; return OK; }

int fmConnect(params_t *params, void **handle) {
    char hang[300];
    if (!initialized) return UNINITIALIZED;
    if (params->version != VERSIONED(params_t, 1)) return VERSION_MISMATCH;
    if (params->isUnixSocket != 1 || params->timeoutMs == 0) return BADPARAM;
    snprintf(hang, sizeof hang, "%s.hang", params->address);
    while (access(hang, F_OK) == 0) sleep(1);
    snprintf(path, sizeof path, "%s.state", params->address);
    *handle = &state;
    return load();
}

int fmDisconnect(void *handle) { return handle == &state ? OK : BADPARAM; }

int fmGetSupportedFabricPartitions(void *handle, list_t *list) {
    int code = ready(handle);
    if (code != OK) return code;
    if (list->version != VERSIONED(list_t, 1)) return VERSION_MISMATCH;
    state.version = list->version;
    memcpy(list, &state, sizeof state);
    return OK;
}

int fmActivateFabricPartition(void *handle, unsigned int id) {
    int code = ready(handle);
    if (code != OK) return code;
    if (waits) return NOT_CONFIGURED;
    partition_t *wanted = find(id);
    if (wanted == NULL) return BADPARAM;
    for (unsigned int i = 0; i < state.count; i++)
        if (state.partitions[i].isActive && overlap(&state.partitions[i], wanted)) return IN_USE;
    wanted->isActive = 1;
    save();
    return OK;
}

int fmDeactivateFabricPartition(void *handle, unsigned int id) {
    int code = ready(handle);
    if (code != OK) return code;
    if (waits) return NOT_CONFIGURED;
    partition_t *wanted = find(id);
    if (wanted == NULL) return BADPARAM;
    if (!wanted->isActive) return UNINITIALIZED;
    wanted->isActive = 0;
    save();
    return OK;
}

int fmSetActivatedFabricPartitions(void *handle, activated_t *list) {
    int code = ready(handle);
    if (code != OK) return code;
    if (list->version != VERSIONED(activated_t, 1)) return VERSION_MISMATCH;
    if (!waits) return NOT_SUPPORTED;
    for (unsigned int i = 0; i < list->count; i++) {
        partition_t *one = find(list->ids[i]);
        if (one == NULL) return BADPARAM;
        one->isActive = 1;
    }
    waits = 0;
    save();
    return OK;
}
