/* Stands in for libcuda.so.1: devices that a file describes, and one kernel, which it computes itself.
 *
 * The files lie in the folder "cuda-double" beside the library:
 *   machine      the CUDA version as cuDriverGetVersion gives it, then a line for each device: UUID of the GPU,
 *                UUID of the device (another one for a MIG device), compute capability, bytes, name
 *   free         how many bytes of each device this process can have; without it, all
 *   compiler     the library that it loads to compile PTX; without it, it needs none
 *   faults/CALL  "fail CODE", "once CODE" for the next call alone, "hang" while the file is there, or "lie":
 *                kernels compute wrongly, memory is twice as large
 * Memory of a device is memory of the process, which is taken as it is written to.
 * With -DCUDA_H='"…/cuda.h"' the compiler compares all functions with those of NVIDIA's header. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
       CUDA_ERROR_ILLEGAL_ADDRESS = 700, CUDA_ERROR_UNKNOWN = 999 };
#endif

enum { MOST_DEVICES = 16, MOST_CHUNKS = 256, THREADS = 1024 };
enum { MAJOR = 75, MINOR = 76, UNDER_MPS = 133 };
#define ENTRY "gpu_dra_probe"

typedef struct { uint8_t gpu[16], device[16]; int major, minor; size_t bytes, used; char name[128]; } device_t;
typedef struct { char *address; size_t bytes; int device; } chunk_t;

static char folder[PATH_MAX];
static int version, count, begun, current = -1, contexts[MOST_DEVICES];
static device_t devices[MOST_DEVICES];
static chunk_t chunks[MOST_CHUNKS];
static char *module;

__attribute__((constructor)) static void find_folder(void) {
    Dl_info found;
    char library[PATH_MAX];
    /* It may have been loaded through a link. */
    if (!dladdr(&count, &found) || realpath(found.dli_fname, library) == NULL) abort();
    *strrchr(library, '/') = '\0';
    snprintf(folder, sizeof folder, "%.*s/cuda-double", PATH_MAX - 16, library);
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

static int read_uuid(const char *text, uint8_t *octets) {
    int at = 0;
    for (; *text && at < 32; text++) {
        if (*text == '-') continue;
        int digit = *text <= '9' ? *text - '0' : (*text | 32) - 'a' + 10;
        octets[at / 2] = (uint8_t)(octets[at / 2] << 4 | digit);
        at++;
    }
    return at == 32;
}

/* Whether CUDA_VISIBLE_DEVICES names a device, by its number or its UUID. */
static int is_visible(int number, const char *uuid) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    char index[12];
    if (wanted == NULL) return 1;
    snprintf(index, sizeof index, "%d", number);
    const char *name = strchr(wanted, '-');
    return strcmp(wanted, index) == 0 || (name != NULL && strcmp(name + 1, uuid) == 0);
}

CUresult cuInit(unsigned int flags) {
    char gpu[64], device[64];
    int code = spoiled("cuInit");
    if (code > 0) return (CUresult)code;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    FILE *file = opened("machine");
    if (file == NULL || fscanf(file, "%d", &version) != 1) return CUDA_ERROR_UNKNOWN;
    memset(devices, 0, sizeof devices);
    count = 0;
    for (int number = 0; count < MOST_DEVICES; number++) {
        device_t *one = devices + count;
        if (fscanf(file, "%63s %63s %d.%d %zu %127[^\n]", gpu, device, &one->major, &one->minor, &one->bytes,
                   one->name) != 6)
            break;
        if (!read_uuid(gpu, one->gpu) || !read_uuid(device, one->device)) return CUDA_ERROR_UNKNOWN;
        if (is_visible(number, device)) count++;
        else memset(one, 0, sizeof *one);
    }
    fclose(file);
    begun = 1;
    return count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
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
    case UNDER_MPS: *value = 0; return CUDA_SUCCESS;
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
    size_t most = devices[current].bytes, allowed;
    FILE *file = opened("free");
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
    case CUDA_ERROR_UNKNOWN: *name = "CUDA_ERROR_UNKNOWN"; return CUDA_SUCCESS;
    default: *name = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}
