// SPDX-License-Identifier: BSD-2-Clause
// The libfabric.so.1 that the programs here load when they run on stock libfabric. They are linked
// to weft and ask for its newest symbol versions, which an older stock library does not have. This
// one has them, and passes each call on to the library that WEFT_REPORTS_STOCK names. Structures of
// a newer API only have more at their ends, which no program here reads.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <stdio.h>
#include <stdlib.h>

static void *stock(const char *name) {
  static void *library;
  const char *path = getenv("WEFT_REPORTS_STOCK");
  if (library == NULL && path != NULL) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *function = library == NULL ? NULL : dlsym(library, name);
  if (function != NULL) return function;
  fprintf(stderr, "stock libfabric: WEFT_REPORTS_STOCK=%s: no %s: %s\n", path == NULL ? "" : path,
          name, dlerror());
  abort();
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
               const struct fi_info *hints, struct fi_info **info) {
  int (*call)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
              struct fi_info **) = stock("fi_getinfo");
  return call(version, node, service, flags, hints, info);
}

void fi_freeinfo(struct fi_info *info) {
  void (*call)(struct fi_info *) = stock("fi_freeinfo");
  call(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info) {
  struct fi_info *(*call)(const struct fi_info *) = stock("fi_dupinfo");
  return call(info);
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context) {
  int (*call)(struct fi_fabric_attr *, struct fid_fabric **, void *) = stock("fi_fabric");
  return call(attr, fabric, context);
}

const char *fi_strerror(int errnum) {
  const char *(*call)(int) = stock("fi_strerror");
  return call(errnum);
}

char *fi_tostr(const void *data, enum fi_type type) {
  char *(*call)(const void *, enum fi_type) = stock("fi_tostr");
  return call(data, type);
}

char *fi_tostr_r(char *buf, size_t len, const void *data, enum fi_type type) {
  char *(*call)(char *, size_t, const void *, enum fi_type) = stock("fi_tostr_r");
  return call(buf, len, data, type);
}

uint32_t fi_version(void) {
  uint32_t (*call)(void) = stock("fi_version");
  return call();
}

int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
            struct fid **fid, void *context) {
  int (*call)(uint32_t, const char *, void *, size_t, uint64_t, struct fid **, void *) =
      stock("fi_open");
  return call(version, name, attr, attr_len, flags, fid, context);
}
