/* What the stand-in for a kernel driver asks of i915.c or nouveau.c, one of which is linked with it. */
#include <stdint.h>

/* The vendor's PCI ID. */
extern const uint16_t VENDOR;

/* The number in the environment variable GPU. */
uint32_t gpu(void);

/* Answers a request to the driver; what it does not know is done. Returns 0, or what ioctl returns for an error. */
int answer(unsigned long request, void *argument);
