/* In libibverbs' place, where there is no RDMA device: keeps regions, refuses those without a byte. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct ibv_mr {
  void *context, *domain, *address;
  size_t bytes;
  uint32_t handle, local_key, remote_key;
};

static int count = 0;

struct ibv_mr* ibv_reg_mr(void* domain, void* address, size_t bytes, int access) {
  struct ibv_mr* region = bytes == 0 || access == 0 ? NULL : malloc(sizeof *region);
  if (region == NULL) {
    errno = EINVAL;
    return NULL;
  }
  *region = (struct ibv_mr){.domain = domain, .address = address, .bytes = bytes};
  ++count;
  return region;
}

int ibv_dereg_mr(struct ibv_mr* region) {
  free(region);
  --count;
  return 0;
}

int registered(void) {
  return count;
}
