/* The part of NVIDIA's nvml.h that tells where GPUs are: FAKE_GPUS boards at PCI buses 0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7,
 * 0xbd (those of a DGX A100); board 1 holds the MIG device MIG-1-fake. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct board *device_t;
typedef struct { char old[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci_t;
static struct board { int index, is_mig; } boards[8], mig = {1, 1};
static const unsigned buses[8] = {0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd};

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)atoi(getenv("FAKE_GPUS")); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
  boards[index].index = (int)index;
  *device = &boards[index];
  return 0;
}
int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned size)
{
  return snprintf(uuid, size, "GPU-%dfake", device->index) >= (int)size ? 7 : 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
  if (strcmp(uuid, "MIG-1-fake")) return 6; /* NVML_ERROR_NOT_FOUND */
  *device = &mig;
  return 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t part, device_t *device)
{
  if (!part->is_mig) return 2; /* NVML_ERROR_INVALID_ARGUMENT */
  return nvmlDeviceGetHandleByIndex_v2(1, device);
}
int nvmlDeviceGetIndex(device_t device, unsigned *index) { *index = (unsigned)device->index; return 0; }
int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci)
{
  memset(pci, 0, sizeof *pci);
  pci->bus = buses[device->index];
  snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
  return 0;
}
