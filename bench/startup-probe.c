// SPDX-License-Identifier: BSD-2-Clause
//
// What a program spends until it has its first fabric: loading libfabric and one fi_getinfo. It is
// plain C: if the probe loaded a C++ run-time library, the cost of loading it for libfabric would
// not show. It is built twice; with WITHOUT_FABRIC it is the floor, a process that only starts.
//
//   weft-bench-startup START_NS      the parent's CLOCK_MONOTONIC at exec
//
// prints "NANOSECONDS PATH-OF-LIBFABRIC" or a line that begins with "error:".
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef WITHOUT_FABRIC
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#endif

int main(int argc, char **argv) {
  const char *library = "-";
#ifndef WITHOUT_FABRIC
  struct fi_info *info = NULL;
  const int rc = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info);
#endif
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc != 2) {
    fprintf(stderr, "usage: %s START_NS (started by weft-bench --test startup)\n", argv[0]);
    return 2;
  }
  const unsigned long long start = strtoull(argv[1], NULL, 10);
  const unsigned long long end =
      (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
#ifndef WITHOUT_FABRIC
  if (rc != 0 || info == NULL) {
    printf("error: fi_getinfo: %s\n", fi_strerror(-rc));
    return 1;
  }
  Dl_info where;
  void *symbol = dlsym(RTLD_DEFAULT, "fi_getinfo");
  if (symbol != NULL && dladdr(symbol, &where) != 0) library = where.dli_fname;
#endif
  printf("%llu %s\n", end - start, library);
#ifndef WITHOUT_FABRIC
  fi_freeinfo(info);
#endif
  return 0;
}
