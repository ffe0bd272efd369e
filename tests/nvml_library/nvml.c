/* Stands in for libnvidia-ml.so.1 of R615: GPUs without MIG whose memory limits by cgroup it keeps in files.
 *
 * The files lie in the folder "nvml-double" beside the library, so that every process has the same:
 *   machine  the driver's version, then a line for each GPU: UUID, bus id, minor, bytes of memory
 *   record   what it was told, in order: nanoseconds since boot, process, "set", "get", "lied" or "gone",
 *            UUID, return code, soft, hard, inode of the cgroup's folder, path. What is set follows from it
 *            alone: a process that is killed has set it or not
 *   modes    compute modes that were set, a line for each: UUID, number. The last one of a GPU holds
 *   limits   if it is there, each limit that is set is written to it: UUID, bytes, path
 *   used     what a test says that programs have allocated: UUID, bytes, path
 *   faults/CALL  "fail CODE", "once CODE" fails the next call alone, "hang" while the file is there, or "lie":
 *            says yes and does nothing, and another thing each time that it is asked something.
 *            CALL-UUID spoils the call of one GPU
 *   faults/Unit  the bytes in whose multiples hard limits are counted, rounded up
 *   faults/NothingIsSet  "fail CODE" is what is said of a cgroup without limits, 0 that it has none
 *   cgroup-root  where there is no cgroup v2, the folder that stands for /sys/fs/cgroup
 * A cgroup is a folder on a cgroup v2 file system. Limits of a folder that is gone are forgotten. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
       NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, OPERATING_SYSTEM = 17, UNKNOWN = 999 };
enum { MOST_GPUS = 16, MOST_LIMITS = 64, LINE = PATH_MAX + 256 };
#define CGROUP2 0x63677270
#define CGROUP_ROOT "/sys/fs/cgroup"
#ifdef WITHOUT_LIMITS
#define SINCE_R615 __attribute__((visibility("hidden")))
#else
#define SINCE_R615
#endif
#define NO_LIMIT 0xFFFFFFFFFFFFFFFFull

typedef unsigned long long bytes_t;
typedef struct { char uuid[96]; unsigned int domain, bus, device, minor; bytes_t memory; } gpu_t;
typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_t;
typedef struct { bytes_t total, free, used; } memory_t;
typedef struct { unsigned int version; bytes_t total, reserved, free, used; } memory_v2_t;
typedef struct { int gpus; } events_t;
typedef struct { const char *path; bytes_t soft, hard; } set_t;
typedef struct { const char *path; bytes_t soft, hard, used; } get_t;
typedef struct { char uuid[96]; bytes_t inode, soft, hard; char path[PATH_MAX]; } limit_t;

static char folder[PATH_MAX], version[80];
static gpu_t gpus[MOST_GPUS];
static limit_t limits[MOST_LIMITS]; /* by whoever holds the lock */
static unsigned int count;
static int sessions;
static unsigned int lies;
static _Thread_local unsigned int lie; /* the number of the lie that this call tells; 0 is the truth */

__attribute__((constructor)) static void find_folder(void) {
    Dl_info found;
    if (!dladdr(&sessions, &found)) abort();
    const char *end = strrchr(found.dli_fname, '/');
    int length = end == NULL ? 1 : (int)(end - found.dli_fname);
    snprintf(folder, sizeof folder, "%.*s/nvml-double", length, end == NULL ? "." : found.dli_fname);
}

static FILE *opened(const char *name, const char *mode) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}

static int load(void) {
    FILE *file = opened("machine", "r");
    if (file == NULL) return UNKNOWN;
    int code = fscanf(file, "%79s", version) == 1 ? SUCCESS : UNKNOWN;
    gpu_t *one = gpus;
    while (one < gpus + MOST_GPUS &&
           fscanf(file, "%95s %x:%x:%x.0 %u %llu", one->uuid, &one->domain, &one->bus, &one->device,
                  &one->minor, &one->memory) == 6)
        one++;
    count = (unsigned int)(one - gpus);
    fclose(file);
    return code;
}

/* Whether a call is to lie; it hangs here, and its code changes, where it is to. */
static int spoiled(const char *call, int *code) {
    char name[192], words[64];
    for (;;) {
        snprintf(name, sizeof name, "faults/%s", call);
        FILE *file = opened(name, "r");
        if (file == NULL) return 0;
        size_t length = fread(words, 1, sizeof words - 1, file);
        words[length] = 0;
        fclose(file);
        if (sscanf(words, "fail %d", code) == 1) return 0;
        if (sscanf(words, "once %d", code) == 1) {
            char path[PATH_MAX + 192];
            snprintf(path, sizeof path, "%s/%s", folder, name);
            if (unlink(path) != 0) abort();
            return 0;
        }
        if (strncmp(words, "lie", 3) == 0) return 1;
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}

static void note(const char *what, int code, const limit_t *limit) {
    struct timespec now;
    char line[LINE], path[PATH_MAX + 64];
    clock_gettime(CLOCK_BOOTTIME, &now);
    int length = snprintf(line, sizeof line, "%lld %d %s %s %d %llu %llu %llu %s\n",
                          now.tv_sec * 1000000000LL + now.tv_nsec, (int)getpid(), what, limit->uuid, code,
                          limit->soft, limit->hard, limit->inode, limit->path);
    snprintf(path, sizeof path, "%s/record", folder);
    int record = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (record < 0 || write(record, line, (size_t)length) != length) abort();
    close(record);
}

/* Tell the processes that a limit is for. */
static void publish(const limit_t *limit) {
    FILE *file = opened("limits", "r+");
    if (file == NULL) return;
    if (fseek(file, 0, SEEK_END) != 0) abort();
    fprintf(file, "%s %llu %s\n", limit->uuid, limit->hard, limit->path);
    fclose(file);
}

/* The folder that stands for /sys/fs/cgroup; empty where none does. */
static void pretended_root(char pretended[PATH_MAX]) {
    *pretended = '\0';
    FILE *root = opened("cgroup-root", "r");
    if (root == NULL) return;
    if (fgets(pretended, PATH_MAX, root) == NULL) abort();
    fclose(root);
}

/* The number of the cgroup's folder, 0 where it is none that can be opened. */
static bytes_t inode_of(const char *path) {
    struct statfs system;
    struct stat status;
    char pretended[PATH_MAX], real[2 * PATH_MAX];
    bytes_t found = 0;
    pretended_root(pretended);
    int is_below = strncmp(path, CGROUP_ROOT, strlen(CGROUP_ROOT)) == 0;
    snprintf(real, sizeof real, "%s%s", pretended, *pretended && is_below ? path + strlen(CGROUP_ROOT) : path);
    int opened_folder = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened_folder < 0) return 0;
    if (fstatfs(opened_folder, &system) == 0 && fstat(opened_folder, &status) == 0 &&
        (system.f_type == CGROUP2 || *pretended))
        found = status.st_ino;
    close(opened_folder);
    return found;
}

/* One call at a time of all processes, until the number that this returns is closed. */
static int locked(void) {
    FILE *file = opened("lock", "a");
    if (file == NULL) abort();
    int held = dup(fileno(file));
    fclose(file);
    if (flock(held, LOCK_EX) != 0) abort();
    return held;
}

static limit_t *kept_limit(const char *uuid, const char *path) {
    for (limit_t *one = limits; one < limits + MOST_LIMITS; one++)
        if (one->inode != 0 && strcmp(one->uuid, uuid) == 0 && strcmp(one->path, path) == 0) return one;
    return NULL;
}

static void keep(const limit_t *new) {
    limit_t *one = kept_limit(new->uuid, new->path);
    for (limit_t *free = limits; one == NULL && free < limits + MOST_LIMITS; free++)
        if (free->inode == 0) one = free;
    if (one == NULL) abort();
    *one = *new;
    if (new->soft == 0 && new->hard == NO_LIMIT) one->inode = 0;
}

/* What is set, from the record; what of it is gone is noted. */
static void recall(void) {
    char what[32];
    int code;
    limit_t one;
    FILE *file = opened("record", "r");
    memset(limits, 0, sizeof limits);
    while (file != NULL && fscanf(file, "%*s %*s %31s %95s %d %llu %llu %llu %4095[^\n]", what, one.uuid,
                                  &code, &one.soft, &one.hard, &one.inode, one.path) == 7) {
        if (strcmp(what, "set") == 0 && code == SUCCESS) keep(&one);
        limit_t *gone = strcmp(what, "gone") == 0 ? kept_limit(one.uuid, one.path) : NULL;
        if (gone != NULL) gone->inode = 0;
    }
    if (file != NULL) fclose(file);
    for (limit_t *kept = limits; kept < limits + MOST_LIMITS; kept++) {
        if (kept->inode == 0 || inode_of(kept->path) == kept->inode) continue;
        note("gone", SUCCESS, kept);
        kept->inode = 0;
    }
}

static bytes_t used_by(const gpu_t *gpu, const char *path) {
    char uuid[96], of[PATH_MAX];
    bytes_t bytes, found = 0;
    FILE *file = opened("used", "r");
    while (file != NULL && fscanf(file, "%95s %llu %4095s", uuid, &bytes, of) == 3)
        if (strcmp(uuid, gpu->uuid) == 0 && strcmp(of, path) == 0) found = bytes;
    if (file != NULL) fclose(file);
    return found;
}

static bytes_t rounded(bytes_t bytes) {
    bytes_t unit = 1;
    FILE *file = opened("faults/Unit", "r");
    if (file != NULL && fscanf(file, "%llu", &unit) != 1) abort();
    if (file != NULL) fclose(file);
    return bytes == NO_LIMIT ? bytes : (bytes + unit - 1) / unit * unit;
}

static int known(const gpu_t *gpu) {
    if (sessions == 0) return UNINITIALIZED;
    return gpu >= gpus && gpu < gpus + count ? SUCCESS : INVALID_ARGUMENT;
}

/* Begins a call that asks a GPU something: its code, and in "lie" whether it lies. */
static int asked(const gpu_t *gpu, const char *call) {
    char of_one[160];
    int code = known(gpu);
    lie = 0;
    if (code != SUCCESS) return code;
    snprintf(of_one, sizeof of_one, "%s-%s", call, gpu->uuid);
    int does_lie = spoiled(call, &code);
    if (code == SUCCESS) does_lie |= spoiled(of_one, &code);
    if (does_lie) lie = ++lies;
    return code;
}

static int text(char *into, unsigned int size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(into, from);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    int code = SUCCESS;
    spoiled("nvmlInit", &code);
    if (code == SUCCESS && sessions == 0) code = load();
    if (code == SUCCESS) sessions++;
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return sessions == 0 ? UNINITIALIZED : (sessions--, SUCCESS); }
const char *nvmlErrorString(int code) { return code == SUCCESS ? "Success" : "An error of the double"; }

int nvmlSystemGetDriverVersion(char *into, unsigned int size) {
    return sessions == 0 ? UNINITIALIZED : text(into, size, version);
}

int nvmlSystemGetCudaDriverVersion_v2(int *into) {
    *into = 13040;
    return sessions == 0 ? UNINITIALIZED : SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *into) {
    *into = count;
    return sessions == 0 ? UNINITIALIZED : SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu_t **device) {
    if (sessions == 0) return UNINITIALIZED;
    if (index >= count) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **device) {
    if (sessions == 0) return UNINITIALIZED;
    for (*device = gpus; *device < gpus + count; ++*device)
        if (strcmp((*device)->uuid, uuid) == 0) return SUCCESS;
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, gpu_t **device) {
    unsigned int domain, bus, number;
    if (sessions == 0) return UNINITIALIZED;
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &number) != 3) return INVALID_ARGUMENT;
    for (*device = gpus; *device < gpus + count; ++*device)
        if ((*device)->domain == domain && (*device)->bus == bus && (*device)->device == number)
            return SUCCESS;
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(gpu_t *gpu, char *into, unsigned int size) {
    int code = asked(gpu, __func__);
    return code == SUCCESS ? text(into, size, gpu->uuid) : code;
}

int nvmlDeviceGetName(gpu_t *gpu, char *into, unsigned int size) {
    static const char *const names[] = {"NVIDIA L4", "NVIDIA L40", "NVIDIA L400"};
    int code = asked(gpu, __func__);
    return code == SUCCESS ? text(into, size, names[lie % 3]) : code;
}

static int number(const gpu_t *gpu, unsigned int *into, unsigned int value, const char *call) {
    int code = asked(gpu, call);
    *into = value + lie;
    return code;
}

int nvmlDeviceGetIndex(gpu_t *gpu, unsigned int *into) {
    return number(gpu, into, (unsigned int)(gpu - gpus), __func__);
}
int nvmlDeviceGetMinorNumber(gpu_t *gpu, unsigned int *into) {
    return known(gpu) == SUCCESS ? number(gpu, into, gpu->minor, __func__) : known(gpu);
}
int nvmlDeviceGetBrand(gpu_t *gpu, unsigned int *into) { return number(gpu, into, 14, __func__); }
int nvmlDeviceGetArchitecture(gpu_t *gpu, unsigned int *into) { return number(gpu, into, 8, __func__); }
int nvmlDeviceGetVirtualizationMode(gpu_t *gpu, unsigned int *into) { return number(gpu, into, 0, __func__); }
int nvmlDeviceGetPersistenceMode(gpu_t *gpu, unsigned int *into) { return number(gpu, into, 0, __func__); }
int nvmlDeviceIsMigDeviceHandle(gpu_t *gpu, unsigned int *into) { return number(gpu, into, 0, __func__); }

int nvmlDeviceGetComputeMode(gpu_t *gpu, unsigned int *into) {
    char uuid[96];
    unsigned int mode, last = 0;
    if (known(gpu) != SUCCESS) return known(gpu);
    FILE *file = opened("modes", "r");
    while (file != NULL && fscanf(file, "%95s %u", uuid, &mode) == 2)
        if (strcmp(uuid, gpu->uuid) == 0) last = mode;
    if (file != NULL) fclose(file);
    return number(gpu, into, last, __func__);
}

int nvmlDeviceSetComputeMode(gpu_t *gpu, unsigned int mode) {
    int code = asked(gpu, __func__);
    if (code == SUCCESS && geteuid() != 0) code = NO_PERMISSION;
    if (code != SUCCESS || lie) return code;
    FILE *file = opened("modes", "a");
    if (file == NULL) abort();
    fprintf(file, "%s %u\n", gpu->uuid, mode);
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(gpu_t *gpu, unsigned int *current, unsigned int *pending) {
    *current = *pending = 0;
    int code = asked(gpu, __func__);
    return code == SUCCESS ? NOT_SUPPORTED : code;
}

int nvmlDeviceGetCudaComputeCapability(gpu_t *gpu, int *major, int *minor) {
    int code = asked(gpu, __func__);
    *major = 8 + (int)lie;
    *minor = 9;
    return code;
}

int nvmlDeviceGetPciInfo_v3(gpu_t *gpu, pci_t *info) {
    int code = asked(gpu, __func__);
    if (code != SUCCESS) return code;
    memset(info, 0, sizeof *info);
    info->domain = gpu->domain;
    info->bus = gpu->bus;
    info->device = gpu->device;
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device);
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", gpu->domain & 0xFFFF, gpu->bus & 0xFF,
             gpu->device & 0xFF);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(gpu_t *gpu, memory_t *into) {
    int code = asked(gpu, __func__);
    if (code == SUCCESS) *into = (memory_t){gpu->memory + lie, gpu->memory, 0};
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(gpu_t *gpu, memory_v2_t *into) {
    int code = asked(gpu, __func__);
    bytes_t reserved = 1 << 20;
    if (code == SUCCESS) *into = (memory_v2_t){into->version, gpu->memory, reserved, gpu->memory - reserved, 0};
    return code;
}

static int no_processes(gpu_t *gpu, unsigned int *into, const char *call) {
    int code = asked(gpu, call);
    if (code == SUCCESS) *into = 0;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, unsigned int *into, void *infos) {
    (void)infos;
    return no_processes(gpu, into, __func__);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu_t *gpu, unsigned int *into, void *infos) {
    (void)infos;
    return no_processes(gpu, into, __func__);
}

int nvmlEventSetCreate(events_t **into) {
    if (sessions == 0) return UNINITIALIZED;
    *into = calloc(1, sizeof **into);
    return *into == NULL ? UNKNOWN : SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(gpu_t *gpu, bytes_t *into) {
    int code = asked(gpu, __func__);
    *into = 0x1F;
    return code;
}

int nvmlDeviceRegisterEvents(gpu_t *gpu, bytes_t types, events_t *events) {
    int code = asked(gpu, __func__);
    if (code == SUCCESS && (types & ~0x1Full) != 0) code = NOT_SUPPORTED;
    if (code == SUCCESS) events->gpus++;
    return code;
}

/* Nothing ever happens to these GPUs. */
int nvmlEventSetWait_v2(events_t *events, void *data, unsigned int milliseconds) {
    (void)data;
    if (sessions == 0) return UNINITIALIZED;
    if (events->gpus == 0) return INVALID_ARGUMENT;
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
    return TIMEOUT;
}

int nvmlEventSetFree(events_t *events) {
    free(events);
    return sessions == 0 ? UNINITIALIZED : SUCCESS;
}

/* Real control groups are root's; pretended ones belong to whoever made their folders. */
static int may_set(void) {
    char pretended[PATH_MAX];
    pretended_root(pretended);
    return geteuid() == 0 || *pretended;
}

/* The limit that is spoken of, once the record was read; 0 as its inode where there is no such cgroup. */
static limit_t spoken_of(const gpu_t *gpu, const char *path) {
    limit_t found = {.inode = inode_of(path)};
    snprintf(found.path, sizeof found.path, "%s", *path ? path : "-");
    snprintf(found.uuid, sizeof found.uuid, "%s", gpu->uuid);
    recall();
    return found;
}

SINCE_R615 int nvmlDeviceSetMemoryLimits_v1(gpu_t *gpu, set_t *told) {
    int code = known(gpu);
    if (code == SUCCESS && (told == NULL || told->path == NULL)) code = INVALID_ARGUMENT;
    if (code != SUCCESS) return code;
    int lies = spoiled("nvmlDeviceSetMemoryLimits", &code), held = locked();
    limit_t new = spoken_of(gpu, told->path);
    new.soft = told->soft;
    new.hard = rounded(told->hard);
    if (code == SUCCESS && !may_set()) code = NO_PERMISSION;
    if (code == SUCCESS && new.inode == 0) code = OPERATING_SYSTEM;
    if (code == SUCCESS && (new.soft > new.hard || new.soft > gpu->memory)) code = INVALID_ARGUMENT;
    if (code == SUCCESS && new.hard > gpu->memory && new.hard != NO_LIMIT) code = INVALID_ARGUMENT;
    note(lies ? "lied" : "set", code, &new);
    if (code == SUCCESS && !lies) publish(&new);
    close(held);
    return code;
}

SINCE_R615 int nvmlDeviceGetMemoryLimits_v1(gpu_t *gpu, get_t *into) {
    int code = known(gpu);
    if (code == SUCCESS && (into == NULL || into->path == NULL)) code = INVALID_ARGUMENT;
    if (code != SUCCESS) return code;
    spoiled("nvmlDeviceGetMemoryLimits", &code);
    int held = locked();
    limit_t found = spoken_of(gpu, into->path);
    const limit_t *kept = kept_limit(found.uuid, found.path);
    if (code == SUCCESS && found.inode == 0) code = OPERATING_SYSTEM;
    if (code == SUCCESS && kept == NULL) {
        code = NOT_FOUND;
        spoiled("NothingIsSet", &code);
        found.hard = NO_LIMIT;
    } else if (kept != NULL)
        found = *kept;
    if (code == SUCCESS) {
        into->soft = found.soft;
        into->hard = found.hard;
        into->used = used_by(gpu, into->path);
    }
    note("get", code, &found);
    close(held);
    return code;
}
