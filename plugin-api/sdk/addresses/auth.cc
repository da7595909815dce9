// SPDX-License-Identifier: BSD-2-Clause
#include <dlfcn.h>
#include <fcntl.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sodium.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/sdk/addresses/auth.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace weft::sdk {
namespace {

constexpr const char *kLibrary = "libsodium.so.23";

Result<AuthKey> key_of(const char *owner, const uint8_t *key, size_t size) {
  if (size == FI_AV_AUTH_KEY)
    return fail(FI_EINVAL, "%s: keys of address vectors are not offered", owner);
  if (size > kMaxAuthKey || key == nullptr)
    return fail(FI_EINVAL, "%s: an auth_key has 1 to %zu bytes, and auth_key points to them", owner,
                kMaxAuthKey);
  return AuthKey(key, key + size);
}

Result<AuthKey> key_in(const std::string &file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // it may be a FIFO
  if (fd < 0)
    return fail(FI_EACCES, "the auth_key_file %s cannot be read: %s", file.c_str(),
                strerror(errno));
  struct stat about {};
  uint8_t bytes[kMaxAuthKey + 2];
  const bool known = fstat(fd, &about) == 0;
  ssize_t n = known && S_ISREG(about.st_mode) ? read(fd, bytes, sizeof bytes) : -1;
  ::close(fd);
  if (n < 0) return fail(FI_EACCES, "the auth_key_file %s is no file to read", file.c_str());
  if (about.st_uid != geteuid() && about.st_uid != 0)
    return fail(FI_EACCES, "the auth_key_file %s is of user %u: make one of your own", file.c_str(),
                unsigned(about.st_uid));
  if ((about.st_mode & 077) != 0)
    return fail(FI_EACCES, "others may read or change the auth_key_file %s: chmod 600 it",
                file.c_str());
  if (n > 0 && bytes[n - 1] == '\n') --n;
  if (n == 0 || size_t(n) > kMaxAuthKey)
    return fail(FI_EINVAL, "the auth_key_file %s has %s: a key has 1 to %zu", file.c_str(),
                n == 0 ? "no bytes" : "too many bytes", kMaxAuthKey);
  return AuthKey(bytes, bytes + n);
}

}  // namespace

bool has_auth_keys(uint32_t api_version) {
  return FI_VERSION_GE(api_version, FI_VERSION(1, 5));
}

Result<AuthKey> auth_key(const fi_info &info, std::string_view file, uint32_t api_version) {
  const bool known = has_auth_keys(api_version);
  if (const fi_ep_attr *ep = info.ep_attr; known && ep != nullptr && ep->auth_key_size != 0)
    return key_of("ep_attr", ep->auth_key, ep->auth_key_size);
  if (const fi_domain_attr *domain = info.domain_attr;
      known && domain != nullptr && domain->auth_key_size != 0)
    return key_of("domain_attr", domain->auth_key, domain->auth_key_size);
  if (!file.empty()) return key_in(std::string(file));
  return AuthKey();
}

Result<const Mac *> Mac::load() {
  static const Result<Mac> loaded = []() -> Result<Mac> {
    void *library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return fail(FI_ENOSYS, "an auth_key needs %s (%s): install libsodium23", kLibrary, dlerror());
    Mac mac;
    size_t i = 0;
    for (const char *name : {"crypto_generichash_statebytes", "crypto_generichash_init",
                             "crypto_generichash_update", "crypto_generichash_final"}) {
      mac.functions_[i] = dlsym(library, name);
      if (mac.functions_[i++] == nullptr)
        return fail(FI_ENOSYS, "an auth_key needs %s, and there is no %s in this one", kLibrary,
                    name);
    }
    return mac;
  }();
  if (!loaded) return tl::unexpected(loaded.error());
  return &*loaded;
}

Mac::Code Mac::of(Bytes key, std::initializer_list<Bytes> pieces) const {
  const auto size = reinterpret_cast<decltype(&crypto_generichash_statebytes)>(functions_[0]);
  const auto init = reinterpret_cast<decltype(&crypto_generichash_init)>(functions_[1]);
  const auto update = reinterpret_cast<decltype(&crypto_generichash_update)>(functions_[2]);
  const auto final = reinterpret_cast<decltype(&crypto_generichash_final)>(functions_[3]);
  // Aligned as the library's own type.
  const std::unique_ptr<void, void (*)(void *)> memory(
      std::aligned_alloc(64, (size() + 63) / 64 * 64), std::free);
  if (memory == nullptr) throw std::bad_alloc();
  auto *state = static_cast<crypto_generichash_state *>(memory.get());
  Code code{};
  init(state, key.data(), key.size(), kSize);
  for (const Bytes &piece : pieces) update(state, piece.data(), piece.size());
  final(state, code.data(), code.size());
  return code;
}

bool Mac::equal(std::span<const uint8_t, kSize> a, std::span<const uint8_t, kSize> b) {
  volatile uint8_t differences = 0;
  for (size_t i = 0; i < kSize; ++i) differences = uint8_t(differences | (a[i] ^ b[i]));
  return differences == 0;
}

void random_bytes(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n > 0) out = out.subspan(size_t(n));
  }
}

Place place_of(const Address &called) {
  Place place{};
  const std::span<const uint8_t> host = called.host();
  if (host.size() == 4) {
    place[10] = place[11] = 0xff;
    std::ranges::copy(host, place.begin() + 12);
  } else {
    std::ranges::copy(host.first(std::min<size_t>(host.size(), 16)), place.begin());
  }
  place[16] = uint8_t(called.port() >> 8);
  place[17] = uint8_t(called.port());
  return place;
}

}  // namespace weft::sdk
