// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/host.h"

#include <sys/stat.h>
#include <unistd.h>
#include <weft/runtime_dir.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace weft::cxi {
namespace {

// FNV-1a, and then mixed: its high bits depend on few of the last bytes.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ uint8_t(c)) * 0x100000001b3u;
  }
  void add(uint64_t word) {
    for (int i = 0; i < 8; ++i) value_ = (value_ ^ (word >> 8 * i & 0xff)) * 0x100000001b3u;
  }
  uint64_t value() const {
    uint64_t x = value_;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return text;
}

// The first PID namespace of a kernel has a number below those of all others, and it is mostly the
// only one.
std::string folder_in(const std::string &runtime, uint64_t pid_namespace) {
  constexpr uint64_t kOthers = 0xf0000000;
  if (pid_namespace < kOthers) return runtime;
  char name[32];
  std::snprintf(name, sizeof name, "/p%llx",
                static_cast<unsigned long long>(pid_namespace - kOthers));
  return runtime + name;
}

}  // namespace

SoftHost::SoftHost(const Facts &facts) {
  Hash hash;
  hash.add(facts.boot);
  hash.add(facts.pid_namespace);
  hash.add(facts.folder_device);
  hash.add(facts.folder);
  number_ = hash.value();
}

Result<SoftHost> SoftHost::own() {
  WEFT_TRY(const std::string runtime, runtime_directory());
  struct stat folder = {}, pids = {};
  if (::stat(runtime.c_str(), &folder) != 0 || ::access(runtime.c_str(), W_OK | X_OK) != 0) {
    const int code = errno;
    return fail(code, "cxi: NICs in software need the runtime folder %s: %s: set WEFT_RUNTIME_DIR",
                runtime.c_str(), strerror(code));
  }
  if (::stat("/proc/self/ns/pid", &pids) != 0)
    return fail(FI_ENODATA, "cxi: /proc/self/ns/pid cannot be read: mount /proc");
  SoftHost own({.boot = boot_id(),
                .pid_namespace = pids.st_ino,
                .folder_device = folder.st_dev,
                .folder = folder.st_ino});
  own.folder_ = folder_in(runtime, pids.st_ino);
  return own;
}

Result<void> SoftHost::make_folder() const {
  if (::mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST) return {};
  const int code = errno;
  return fail(code, "cxi: the folder of the NICs in software, %s: %s", folder_.c_str(),
              strerror(code));
}

// Neither 0, which stands for none, nor the highest one, which is nobody's (Peer::nowhere). NICs of
// one host differ as their local addresses do.
Nid SoftHost::nid_of(uint32_t local) const {
  return Nid(1 + (number_ % kMaxNid + (local & kMaxNid)) % (kMaxNid - 1));
}

}  // namespace weft::cxi
