/* A stand-in for libnvidia-ml.so.1 with one GPU: as much of it as makes NVIDIA's CDI generator run.
 *
 * It is compiled with -DVERSION, -DUUID, -DBUS_ID and -DMINOR. The generator asks it for nothing else;
 * what is compared are the files and nodes that the generator finds by itself.
 */
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, pci_device_id, subsystem_id;
    char bus_id[32];
} pci_info;

static int gpu;

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == SUCCESS ? "Success" : "Not Supported"; }

static int text(char *into, unsigned int size, const char *from) {
    strncpy(into, from, size);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *into, unsigned int size) { return text(into, size, VERSION); }
int nvmlDeviceGetUUID(void *device, char *into, unsigned int size) { return text(into, size, UUID); }
int nvmlDeviceGetName(void *device, char *into, unsigned int size) { return text(into, size, "GPU"); }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 1;
    return SUCCESS;
}

static int found(void **device) {
    *device = &gpu;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { return index ? NOT_FOUND : found(device); }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    return strcmp(uuid, UUID) ? NOT_FOUND : found(device);
}

int nvmlDeviceGetIndex(void *device, unsigned int *index) {
    *index = 0;
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned int *minor) {
    *minor = MINOR;
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(void *device, unsigned int *is_mig) {
    *is_mig = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *now, unsigned int *pending) { return NOT_SUPPORTED; }
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count) {
    *count = 0;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, pci_info *info) {
    memset(info, 0, sizeof *info);
    return text(info->bus_id, sizeof info->bus_id, "0000" BUS_ID);
}
