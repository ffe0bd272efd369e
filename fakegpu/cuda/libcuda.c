/* Stands in for libcuda.so.1: devices that a text describes, and one kernel, which it computes itself.
 *
 * The text is the end of the library's own file, which the dynamic linker does not read: in a container the
 * library has no other file. Behind the text are its length, eight hexadecimal digits, and END_MARK. It has
 *   the CUDA version as cuDriverGetVersion gives it, a space, and a folder that may have the device nodes, too
 *   a line for each device and each GPU in MIG mode: UUID of the GPU, UUID of the device ("-" for a GPU in MIG
 *   mode), compute capability, bytes, the device nodes that a process needs to see it ("-" for none), name
 * A file with the folder's name and ".limits" may have memory limits as R615 holds them, a line for each: UUID of
 * the GPU, bytes, control group below /sys/fs/cgroup. The last line of a group counts.
 * If there is a folder "cuda-double" beside the library, these files in it hold:
 *   machine      the text, instead of the one in the library
 *   free         how many bytes of each device this process can have; without it, all
 *   compiler     the library that it loads to compile PTX; without it, it needs none
 *   faults/CALL  "fail CODE", "once CODE" for the next call alone, "hang" while the file is there, or "lie":
 *                kernels compute wrongly, memory is twice as large
 * Memory of a device is memory of the process, which is taken as it is written to. What others have of a device
 * is not known. With CUDA_MPS_PIPE_DIRECTORY the process is a client of the fake MPS daemon (fakegpu/mps).
 * With -DCUDA_H='"…/cuda.h"' the compiler compares all functions with those of NVIDIA's header. */
#define _GNU_SOURCE
#include <features.h>
/* From glibc 2.38 on, scanf is another function for C23, which the older glibc of a container lacks. */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0
#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef CUDA_H
#include CUDA_H
#undef cuDeviceGetUuid
#else
typedef int CUresult, CUdevice, CUdevice_attribute;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct { char bytes[16]; } CUuuid;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2,
       CUDA_ERROR_NOT_INITIALIZED = 3, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_INVALID_DEVICE = 101,
       CUDA_ERROR_INVALID_CONTEXT = 201, CUDA_ERROR_INVALID_PTX = 218,
       CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221, CUDA_ERROR_NOT_FOUND = 500,
       CUDA_ERROR_ILLEGAL_ADDRESS = 700, CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
       CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808, CUDA_ERROR_UNKNOWN = 999 };
#endif

enum { MOST_DEVICES = 128, MOST_CHUNKS = 256, THREADS = 1024, MOST_TEXT = 1 << 16, END_LENGTH = 8 };
enum { MAJOR = 75, MINOR = 76, UNDER_MPS = 133 };
#define ENTRY "gpu_dra_probe"
#define END_MARK "DEVICES\n"

/* "index" is the number of the GPU among those that are seen. */
typedef struct {
    uint8_t gpu[16], device[16];
    int index, major, minor;
    size_t bytes, limit, used;
    char uuid[64], name[128];
} device_t;
typedef struct { char *address; size_t bytes; int device; } chunk_t;

static char library[PATH_MAX], folder[PATH_MAX];
static int version, count, begun, daemon_socket = -1, current = -1, contexts[MOST_DEVICES];
static device_t devices[MOST_DEVICES];
static chunk_t chunks[MOST_CHUNKS];
static char *module;

__attribute__((constructor)) static void find_folder(void) {
    Dl_info found;
    /* It may have been loaded through a link. */
    if (!dladdr(&count, &found) || realpath(found.dli_fname, library) == NULL) abort();
    int length = (int)(strrchr(library, '/') - library);
    snprintf(folder, sizeof folder, "%.*s/cuda-double", length < PATH_MAX - 16 ? length : 0, library);
}

static FILE *opened(const char *name) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "r");
}

/* The code that a fault rule makes a call fail with, 0 without one; -1 if it makes the call lie. */
static int spoiled(const char *call) {
    char name[64], path[PATH_MAX + 64], word[16];
    snprintf(name, sizeof name, "faults/%s", call);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (;;) {
        FILE *file = opened(name);
        if (file == NULL) return 0;
        int code = CUDA_ERROR_UNKNOWN;
        int words = fscanf(file, "%15s %d", word, &code);
        fclose(file);
        if (words >= 1 && strcmp(word, "hang") == 0) {
            nanosleep(&(struct timespec){0, 10000000}, NULL);
            continue;
        }
        if (words >= 1 && strcmp(word, "lie") == 0) return -1;
        if (words >= 1 && strcmp(word, "once") == 0) unlink(path);
        return code;
    }
}

#define ENTER(call)                                                                                          \
    int lies = spoiled(call);                                                                                \
    if (lies > 0) return (CUresult)lies;                                                                     \
    if (!begun) return CUDA_ERROR_NOT_INITIALIZED;                                                           \
    (void)lies

/* The text that describes the devices; NULL if there is none. */
static FILE *opened_text(void) {
    static char text[MOST_TEXT];
    char end[END_LENGTH + sizeof END_MARK] = "";
    unsigned int bytes = 0;
    FILE *file = opened("machine");
    if (file != NULL || (file = fopen(library, "r")) == NULL) return file;
    int behind = END_LENGTH + (int)sizeof END_MARK - 1;
    int found = fseek(file, -behind, SEEK_END) == 0 && fread(end, 1, (size_t)behind, file) == (size_t)behind &&
                strcmp(end + END_LENGTH, END_MARK) == 0 && sscanf(end, "%8x", &bytes) == 1 &&
                bytes > 0 && bytes < MOST_TEXT && fseek(file, -(long)bytes - behind, SEEK_END) == 0 &&
                fread(text, 1, bytes, file) == bytes;
    fclose(file);
    return found ? fmemopen(text, bytes, "r") : NULL;
}

static int read_uuid(const char *text, uint8_t *octets) {
    int at = 0;
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) return 0;
    for (text += 4; *text && at < 32; text++) {
        if (*text == '-') continue;
        int digit = *text <= '9' ? *text - '0' : (*text | 32) - 'a' + 10;
        octets[at / 2] = (uint8_t)(octets[at / 2] << 4 | digit);
        at++;
    }
    return at == 32;
}

static int is_mig(const device_t *one) { return strncmp(one->uuid, "MIG-", 4) == 0; }

/* Whether all device nodes are there, in /dev or below the folder of the text. */
static int has_nodes(char *nodes, const char *root) {
    char path[2 * PATH_MAX], *rest;
    if (strcmp(nodes, "-") == 0) return 1;
    for (char *node = strtok_r(nodes, ",", &rest); node != NULL; node = strtok_r(NULL, ",", &rest)) {
        snprintf(path, sizeof path, "%s%s", root, node);
        if (access(node, F_OK) != 0 && access(path, F_OK) != 0) return 0;
    }
    return 1;
}

static int is_named(const device_t *one, const char *name) {
    size_t length = strlen(name);
    if (length > 0 && strspn(name, "0123456789") == length) return one->index == atoi(name);
    return length >= 4 && strncmp(one->uuid, name, length) == 0;
}

/* Keep the devices that CUDA_VISIBLE_DEVICES names, in its order. As in CUDA, the first unknown name ends the
 * list. Then a process sees one MIG device at most, and no whole GPU beside it (MIG user guide). */
static void choose(void) {
    static device_t all[MOST_DEVICES];
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    char names[4096], *rest;
    if (wanted != NULL) {
        int there = count, taken[MOST_DEVICES] = {0};
        memcpy(all, devices, sizeof all);
        memset(devices, 0, sizeof devices);
        snprintf(names, sizeof names, "%s", wanted);
        count = 0;
        for (char *name = strtok_r(names, ", ", &rest); name != NULL; name = strtok_r(NULL, ", ", &rest)) {
            int one = 0;
            while (one < there && !is_named(all + one, name)) one++;
            if (one == there || taken[one]) break;
            taken[one] = 1;
            devices[count++] = all[one];
        }
    }
    for (int one = 0; one < count; one++)
        if (is_mig(devices + one)) {
            devices[0] = devices[one];
            count = 1;
        }
}

/* Become a client of the MPS daemon, if there is one, and keep the devices that it serves. */
static char answer[4096];
static CUresult join_mps(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY"), *own = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char question[512];
    size_t length = 0;
    if (pipes == NULL || strlen(pipes) + sizeof "/control" > sizeof address.sun_path) return CUDA_SUCCESS;
    sprintf(address.sun_path, "%s/control", pipes);
    if (access(address.sun_path, F_OK) != 0) return CUDA_SUCCESS;
    int simple = own != NULL && strlen(own) < 256 && strpbrk(own, "\"\\") == NULL;
    const char *quote = simple ? "\"" : "";
    snprintf(question, sizeof question,
             "{\"pid\": null, \"uid\": %u, \"percentage\": null, \"pinned\": %s%s%s}\n", getuid(), quote,
             simple ? own : "null", quote);
    daemon_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(daemon_socket, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(daemon_socket, question, strlen(question), MSG_NOSIGNAL) < 0)
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    while (strchr(answer, '\n') == NULL) {
        ssize_t got = recv(daemon_socket, answer + length, sizeof answer - 1 - length, 0);
        if (got <= 0) return CUDA_ERROR_MPS_CONNECTION_FAILED;
        length += (size_t)got;
    }
    if (strstr(answer, "\"refused\"") != NULL) return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
    int there = count;
    count = 0;
    for (int one = 0; one < there; one++)
        if (strstr(answer, devices[one].uuid) != NULL) devices[count++] = devices[one];
    return CUDA_SUCCESS;
}

/* Limit the devices to what the MPS daemon has answered, by their ordinals. */
static void limit_by_mps(void) {
    const char *limits = strstr(answer, "\"pinned_mib\": {");
    for (int one = 0; one < count && limits != NULL; one++) {
        char key[16];
        size_t mib;
        snprintf(key, sizeof key, "\"%d\": ", one);
        const char *found = strstr(limits, key);
        if (found != NULL && sscanf(found + strlen(key), "%zu", &mib) == 1) devices[one].limit = mib << 20;
    }
}

/* Limit the devices to what the control group of this process may have of them. */
static void limit_by_cgroup(const char *root) {
    char name[PATH_MAX + 16], line[PATH_MAX], own[PATH_MAX] = "", uuid[64], path[PATH_MAX];
    size_t bytes;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "0::%4095s", path) == 1) snprintf(own, sizeof own, "/sys/fs/cgroup%.4000s", path);
    if (file != NULL) fclose(file);
    snprintf(name, sizeof name, "%s.limits", root);
    if ((file = fopen(name, "r")) == NULL) return;
    while (fscanf(file, "%63s %zu %4095s", uuid, &bytes, path) == 3)
        for (int one = 0; one < count; one++)
            if (strcmp(devices[one].uuid, uuid) == 0 && strcmp(path, own) == 0) devices[one].limit = bytes;
    fclose(file);
}

CUresult cuInit(unsigned int flags) {
    char root[PATH_MAX], gpu[64], nodes[256], last[64] = "";
    int index = -1, code = spoiled("cuInit");
    if (code > 0) return (CUresult)code;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (begun) return CUDA_SUCCESS;
    FILE *file = opened_text();
    if (file == NULL || fscanf(file, "%d %4095[^\n]", &version, root) != 2) return CUDA_ERROR_UNKNOWN;
    memset(devices, 0, sizeof devices);
    count = 0;
    while (count < MOST_DEVICES) {
        device_t one = {.limit = SIZE_MAX};
        if (fscanf(file, "%63s %63s %d.%d %zu %255s %127[^\n]", gpu, one.uuid, &one.major, &one.minor, &one.bytes,
                   nodes, one.name) != 7)
            break;
        if (!has_nodes(nodes, root)) continue;
        if (strcmp(gpu, last) != 0) index++;
        strcpy(last, gpu);
        if (strcmp(one.uuid, "-") == 0) continue;
        if (!read_uuid(gpu, one.gpu) || !read_uuid(one.uuid, one.device)) return CUDA_ERROR_UNKNOWN;
        one.index = index;
        devices[count++] = one;
    }
    fclose(file);
    CUresult joined = count == 0 ? CUDA_SUCCESS : join_mps();
    if (joined != CUDA_SUCCESS) return joined;
    choose();
    if (count == 0) return CUDA_ERROR_NO_DEVICE;
    limit_by_cgroup(root);
    limit_by_mps();
    begun = 1;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *found) {
    ENTER("cuDriverGetVersion");
    *found = version;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *found) {
    ENTER("cuDeviceGetCount");
    *found = count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= count) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

#define DEVICE(call, device)                                                                                 \
    ENTER(call);                                                                                             \
    if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    DEVICE("cuDeviceGetName", device);
    snprintf(name, (size_t)length, "%s", devices[device].name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    DEVICE("cuDeviceGetUuid", device);
    memcpy(uuid->bytes, devices[device].gpu, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

#ifndef WITHOUT_UUID_V2
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    DEVICE("cuDeviceGetUuid_v2", device);
    memcpy(uuid->bytes, devices[device].device, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}
#endif

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    DEVICE("cuDeviceTotalMem_v2", device);
    *bytes = devices[device].bytes * (lies < 0 ? 2 : 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    DEVICE("cuDeviceGetAttribute", device);
    switch ((int)attribute) {
    case MAJOR: *value = devices[device].major; return CUDA_SUCCESS;
    case MINOR: *value = devices[device].minor; return CUDA_SUCCESS;
#ifndef WITHOUT_UUID_V2
    case UNDER_MPS: *value = daemon_socket >= 0; return CUDA_SUCCESS;
#endif
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    DEVICE("cuDevicePrimaryCtxRetain", device);
    contexts[device]++;
    *context = (CUcontext)(contexts + device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    DEVICE("cuDevicePrimaryCtxRelease_v2", device);
    if (contexts[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--contexts[device] > 0) return CUDA_SUCCESS;
    for (chunk_t *one = chunks; one < chunks + MOST_CHUNKS; one++)
        if (one->address != NULL && one->device == device) {
            munmap(one->address, one->bytes);
            one->address = NULL;
        }
    devices[device].used = 0;
    if (current == device) current = -1;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER("cuCtxSetCurrent");
    ptrdiff_t device = (int *)context - contexts;
    if (device < 0 || device >= count || contexts[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    current = (int)device;
    return CUDA_SUCCESS;
}

#define CONTEXT(call)                                                                                        \
    ENTER(call);                                                                                             \
    if (current < 0) return CUDA_ERROR_INVALID_CONTEXT

CUresult cuCtxSynchronize(void) {
    CONTEXT("cuCtxSynchronize");
    return CUDA_SUCCESS;
}

static size_t most_bytes(void) {
    size_t most = devices[current].bytes, allowed = devices[current].limit;
    FILE *file = opened("free");
    if (allowed < most) most = allowed;
    if (file == NULL) return most;
    if (fscanf(file, "%zu", &allowed) == 1 && allowed < most) most = allowed;
    fclose(file);
    return most;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CONTEXT("cuMemGetInfo_v2");
    *free_bytes = most_bytes() - devices[current].used;
    *total = devices[current].bytes * (lies < 0 ? 2 : 1);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CONTEXT("cuMemAlloc_v2");
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    chunk_t *one = chunks;
    while (one < chunks + MOST_CHUNKS && one->address != NULL) one++;
    if (one == chunks + MOST_CHUNKS || devices[current].used + bytes > most_bytes())
        return CUDA_ERROR_OUT_OF_MEMORY;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *one = (chunk_t){memory, bytes, current};
    devices[current].used += bytes;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CONTEXT("cuMemFree_v2");
    for (chunk_t *one = chunks; one < chunks + MOST_CHUNKS; one++)
        if (one->address != NULL && (CUdeviceptr)(uintptr_t)one->address == address && one->device == current) {
            munmap(one->address, one->bytes);
            devices[current].used -= one->bytes;
            one->address = NULL;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* The memory at an address; NULL if so much is not allocated there. */
static char *memory_at(CUdeviceptr address, size_t bytes) {
    for (chunk_t *one = chunks; one < chunks + MOST_CHUNKS; one++) {
        if (one->address == NULL || one->device != current) continue;
        CUdeviceptr start = (CUdeviceptr)(uintptr_t)one->address;
        if (start <= address && address + bytes <= start + one->bytes)
            return one->address + (address - start);
    }
    return NULL;
}

CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t bytes) {
    CONTEXT("cuMemsetD8_v2");
    char *memory = memory_at(address, bytes);
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    memset(memory, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr address, const void *content, size_t bytes) {
    CONTEXT("cuMemcpyHtoD_v2");
    char *memory = memory_at(address, bytes);
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(memory, content, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *content, CUdeviceptr address, size_t bytes) {
    CONTEXT("cuMemcpyDtoH_v2");
    char *memory = memory_at(address, bytes);
    if (memory == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(content, memory, bytes);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *found, const void *image) {
    CONTEXT("cuModuleLoadData");
    char compiler[128];
    FILE *file = opened("compiler");
    if (file != NULL && fscanf(file, "%127s", compiler) == 1 && dlopen(compiler, RTLD_NOW) == NULL)
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    if (file != NULL) fclose(file);
    if (strncmp(image, ".version", 8) != 0 || strstr(image, ".entry") == NULL) return CUDA_ERROR_INVALID_PTX;
    free(module);
    module = strdup(image);
    *found = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *found, CUmodule loaded, const char *name) {
    CONTEXT("cuModuleGetFunction");
    if ((char *)loaded != module || strcmp(name, ENTRY) != 0 || strstr(module, ".entry " ENTRY "(") == NULL)
        return CUDA_ERROR_NOT_FOUND;
    *found = (CUfunction)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule loaded) {
    CONTEXT("cuModuleUnload");
    if (module == NULL || (char *)loaded != module) return CUDA_ERROR_INVALID_VALUE;
    free(module);
    module = NULL;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
    CONTEXT("cuLaunchKernel");
    if (module == NULL || (char *)function != module || stream != NULL || shared_bytes != 0 || extra != NULL ||
        grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || block_x == 0 || block_x > THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = *(uint64_t *)parameters[0];
    uint32_t words = *(uint32_t *)parameters[1], seed = *(uint32_t *)parameters[2];
    uint32_t *memory = (uint32_t *)memory_at(address, words * sizeof *memory);
    if (memory == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t threads = (uint64_t)grid_x * block_x;
    for (uint64_t thread = 0; thread < threads && thread < words; thread++)
        memory[thread] = memory[thread] * 0x9E3779B1u + seed;
    if (lies < 0) memory[words - 1] ^= 1;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    switch ((int)code) {
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_INITIALIZED: *name = "CUDA_ERROR_NOT_INITIALIZED"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_PTX: *name = "CUDA_ERROR_INVALID_PTX"; return CUDA_SUCCESS;
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND: *name = "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_MPS_CONNECTION_FAILED: *name = "CUDA_ERROR_MPS_CONNECTION_FAILED"; return CUDA_SUCCESS;
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: *name = "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"; return CUDA_SUCCESS;
    case CUDA_ERROR_UNKNOWN: *name = "CUDA_ERROR_UNKNOWN"; return CUDA_SUCCESS;
    default: *name = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}
