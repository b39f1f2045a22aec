/* A library with the names and types of NVIDIA's nvml.h, for machines without a GPU: FAKE_GPUS boards, each of which draws 100 W and
 * 10 W more per index since 1970. FAKE_OLD=1: boards from before Volta, without an energy counter, and a driver from before R535.
 * FAKE_SICK=1: board 1 remembers faults, and a stranger computes on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { int index; } *device_t;
static struct { int index; } boards[16];

static int is_old(void) { return getenv("FAKE_OLD") != NULL; }
static int text(char *to, unsigned size, const char *from)
{
  if (strlen(from) >= size) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
  strcpy(to, from);
  return 0;
}
static int give(unsigned *to, unsigned value) { *to = value; return 0; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return getenv("FAKE_BROKEN") ? 9 : 0; } /* NVML_ERROR_DRIVER_NOT_LOADED */
const char *nvmlErrorString(int status) { return status == 3 ? "Not Supported" : status == 9 ? "Driver Not Loaded" : "Other"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return give(count, (unsigned)atoi(getenv("FAKE_GPUS"))); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
  boards[index].index = (int)index;
  *device = (device_t)&boards[index];
  return 0;
}
int nvmlDeviceGetName(device_t device, char *name, unsigned size) { return text(name, size, getenv("FAKE_DISPLAY") && device->index == 3 ? "NVIDIA Fake-Display" : "NVIDIA Fake-40GB"); }
int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned size)
{
  char words[32];
  snprintf(words, sizeof words, "GPU-%d-fake", device->index);
  return text(uuid, size, words);
}
int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *mj)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (is_old()) return 3; /* NVML_ERROR_NOT_SUPPORTED */
  *mj = (unsigned long long)((100 + 10 * device->index) * (1e3 * (double)(now.tv_sec - 1700000000) + 1e-6 * (double)now.tv_nsec));
  return 0;
}
int nvmlDeviceGetPowerUsage(device_t device, unsigned *mw) { return give(mw, 100000 + 10000 * (unsigned)device->index); }
int nvmlDeviceGetEnforcedPowerLimit(device_t device, unsigned *mw) { return give(mw, device->index == 1 ? 300000 : 400000); }
int nvmlDeviceGetPowerManagementDefaultLimit(device_t device, unsigned *mw) { (void)device; return give(mw, 400000); }
int nvmlDeviceGetClockInfo(device_t device, int type, unsigned *mhz) { (void)device; return give(mhz, type == 1 ? 1410 : 1215); }
int nvmlDeviceGetMaxClockInfo(device_t device, int type, unsigned *mhz) { (void)device; return give(mhz, type == 1 ? 1980 : 2619); }
int nvmlDeviceGetPersistenceMode(device_t device, unsigned *mode) { (void)device; return give(mode, 1); }
int nvmlDeviceGetEccMode(device_t device, unsigned *current, unsigned *pending) { (void)device; *pending = 0; return give(current, 1); }
int nvmlDeviceGetTemperature(device_t device, int sensor, unsigned *celsius) { (void)device; return sensor ? 2 : give(celsius, 61); }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *bits) { *bits = device->index ? 4 : 0; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *bits)
{
  return is_old() ? 3 : nvmlDeviceGetCurrentClocksThrottleReasons(device, bits);
}
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return text(version, size, "535.104.05"); }
int nvmlSystemGetNVMLVersion(char *version, unsigned size) { return text(version, size, "12.535.104.05"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12020; return 0; }

/* What doctor asks. */
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { unsigned long long total, free, used; } memory_t;
static int is_sick(device_t device) { return getenv("FAKE_SICK") != NULL && device->index == 1; }
int nvmlDeviceGetTotalEccErrors(device_t device, int type, int counter, unsigned long long *count)
{
  *count = is_sick(device) && type == 1 && counter == 0 ? 3 : 0;
  return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(device_t device, unsigned *is_pending) { return give(is_pending, (unsigned)is_sick(device)); }
int nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected, unsigned *is_pending, unsigned *has_failed)
{
  *corrected = 0;
  *uncorrected = *is_pending = (unsigned)is_sick(device);
  return give(has_failed, (unsigned)is_sick(device));
}
int nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *is_active)
{
  return link < 4 ? give(is_active, !is_sick(device) || link < 3) : 2; /* NVML_ERROR_INVALID_ARGUMENT */
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *infos)
{
  if (*count < (unsigned)is_sick(device)) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
  *count = (unsigned)is_sick(device);
  if (is_sick(device)) infos[0] = (process_t){.pid = 1, .used = 1ull << 30};
  return 0;
}
int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory)
{
  (void)device;
  *memory = (memory_t){.total = 40ull << 30, .free = 39ull << 30, .used = 1ull << 29};
  return 0;
}
