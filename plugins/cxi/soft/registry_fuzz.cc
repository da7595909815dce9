// SPDX-License-Identifier: BSD-2-Clause
// A registry whose file somebody else has written: anything, or a good one with bytes that change
// under a process that uses it. Input: a byte for which of the two, then the file, or places and
// what they become.
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "plugins/cxi/soft/registry.h"
#include "plugins/cxi/soft/registry_file.h"

using namespace weft::cxi;

namespace {

class FuzzFolder {
 public:
  FuzzFolder() {
    char name[] = "/tmp/cxi_registry_fuzz.XXXXXX";
    if (mkdtemp(name) == nullptr) std::abort();
    path = name;
  }
  ~FuzzFolder() { std::filesystem::remove_all(path); }
  std::string file() const { return path + "/cxi-nic-1"; }
  std::string path;
};

// Each answer is as good as another; it must be one.
void use(Registry &registry) {
  (void)registry.services();
  (void)registry.usage(0);
  (void)registry.usage(1);
  (void)registry.has_vni(10);
  (void)registry.find(10, 7);
  if (const auto pid = registry.claim(10, kAnyPid)) registry.release(10, *pid);
  if (const auto opened = registry.use(1, "cxi0"))
    for (const Resource resource : {Resource::kListEntry, Resource::kTriggered}) {
      if (opened->pool->take(resource)) opened->pool->give(resource);
      (void)opened->pool->used(resource);
      (void)opened->pool->limit(resource);
    }
  if (const auto id = registry.create({})) {
    (void)registry.enable(*id, false);
    (void)registry.destroy(*id);
  }
}

void patch(const std::string &path, const uint8_t *data, size_t size) {
  std::FILE *const file = std::fopen(path.c_str(), "r+");
  if (file == nullptr) return;
  for (; size >= 4; data += 4, size -= 4) {
    const size_t place = (size_t{data[0]} << 16 | size_t{data[1]} << 8 | data[2]);
    if (std::fseek(file, long(place % sizeof(RegistryFile)), SEEK_SET) == 0)
      std::fputc(data[3], file);
  }
  std::fclose(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const FuzzFolder folder;
  const bool is_any = data[0] % 2 == 0;
  ++data, --size;
  if (is_any)
    std::ofstream(folder.file(), std::ios::binary)
        .write(reinterpret_cast<const char *>(data), std::streamsize(size));
  const auto registry = Registry::open(folder.path, 1, {.list_entries = 8, .triggered = 4});
  if (!registry) return 0;
  if (!is_any) patch(folder.file(), data, size);
  use(**registry);
  if (const auto second = Registry::open(folder.path, 1, {})) use(**second);
  return 0;
}
