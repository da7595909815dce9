// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/auth_key.h"

#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/auth.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace weft::cxi {
namespace {

static_assert(sizeof(cxi_auth_key) == kAuthKeySize);

constexpr const char *kVnis = "SLINGSHOT_VNIS", *kDevices = "SLINGSHOT_DEVICES",
                     *kServices = "SLINGSHOT_SVC_IDS";

const char *variable(const char *name) {
  const char *const value = secure_getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Result<std::vector<uint32_t>> numbers_of(const char *name, const char *list, uint32_t most) {
  std::vector<uint32_t> numbers;
  for (const std::string_view word : words_of(list)) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(word.begin(), word.end(), value);
    if (error != std::errc() || end != word.end() || value == 0 || value > most)
      return fail(FI_EINVAL,
                  "cxi: %s is \"%s\": \"%.*s\" is no number of 1 to %u; as %s=%s it would do", name,
                  list, int(word.size()), word.data(), most, name, name == kVnis ? "234" : "5,6");
    numbers.push_back(value);
  }
  return numbers;
}

// Of those that this user may use and that `fits`, the newest one.
template <class F>
const Service *newest(const std::vector<Service> &services, F fits) {
  const Service *best = nullptr;
  for (const Service &one : services)
    if (one.is_enabled && fits(one) && (best == nullptr || one.id > best->id)) best = &one;
  return best;
}

}  // namespace

Result<std::optional<AuthKey>> auth_key_of(const char *owner, const uint8_t *key, size_t size) {
  if (size == 0 && key == nullptr) return std::nullopt;
  if (size == FI_AV_AUTH_KEY)
    return fail(
        FI_EINVAL,
        "%s.auth_key_size: FI_AV_AUTH_KEY is the size of the domain's key, and its auth_key "
        "is NULL",
        owner);
  if (key == nullptr || size != kAuthKeySize)
    return fail(FI_EINVAL,
                "%s: an auth_key of cxi is a struct cxi_auth_key of %zu bytes (rdma/fi_cxi_ext.h), "
                "not %zu at %p",
                owner, kAuthKeySize, size, static_cast<const void *>(key));
  cxi_auth_key found;
  std::memcpy(&found, key, sizeof found);
  if (found.vni == 0) return fail(FI_EINVAL, "%s.auth_key: VNI 0: they are 1 to 65535", owner);
  return AuthKey{.service = found.svc_id, .vni = found.vni};
}

bool has_vector_keys(const fi_info &info, uint32_t api_version) {
  return sdk::has_auth_keys(api_version) && info.domain_attr != nullptr &&
         info.domain_attr->auth_key_size == FI_AV_AUTH_KEY;
}

Result<std::optional<AuthKey>> auth_key_of(const fi_info &info, uint32_t api_version) {
  if (!sdk::has_auth_keys(api_version)) return std::nullopt;
  if (has_vector_keys(info, api_version)) {
    const fi_ep_attr *const ep = info.ep_attr;
    const bool has_own =
        ep != nullptr && (ep->auth_key != nullptr ||
                          (ep->auth_key_size != 0 && ep->auth_key_size != FI_AV_AUTH_KEY));
    if (!has_own && info.domain_attr->auth_key == nullptr) return std::nullopt;
    return fail(FI_EINVAL,
                "%s.auth_key: with FI_AV_AUTH_KEY the keys are those of address vectors "
                "(fi_av_insert_auth_key); make it NULL",
                has_own ? "ep_attr" : "domain_attr");
  }
  std::optional<AuthKey> of_domain, of_endpoint;
  if (const fi_domain_attr *const domain = info.domain_attr; domain != nullptr) {
    WEFT_TRY(of_domain, auth_key_of("domain_attr", domain->auth_key, domain->auth_key_size));
  }
  if (const fi_ep_attr *const ep = info.ep_attr; ep != nullptr) {
    WEFT_TRY(of_endpoint, auth_key_of("ep_attr", ep->auth_key, ep->auth_key_size));
  }
  if (of_domain && of_endpoint && *of_domain != *of_endpoint)
    return fail(FI_EINVAL,
                "ep_attr.auth_key is service %u, VNI %u, and that of domain_attr service %u, VNI "
                "%u: cxi has endpoints with the key of their domain only",
                of_endpoint->service, of_endpoint->vni, of_domain->service, of_domain->vni);
  return of_domain ? of_domain : of_endpoint;
}

Result<void> put_auth_key(fi_info &info, const AuthKey &key) {
  auto *const bytes = static_cast<uint8_t *>(std::calloc(1, kAuthKeySize));
  if (bytes == nullptr) return fail(FI_ENOMEM, "no memory for a key");
  const cxi_auth_key whole{.svc_id = key.service, .vni = key.vni};
  std::memcpy(bytes, &whole, sizeof whole);
  std::free(info.domain_attr->auth_key);
  info.domain_attr->auth_key = bytes;
  info.domain_attr->auth_key_size = kAuthKeySize;
  return {};
}

// ---- a launcher ----

Launcher Launcher::of_environment() {
  return {.vnis = variable(kVnis), .devices = variable(kDevices), .services = variable(kServices)};
}

bool Launcher::is_there() const {
  return vnis != nullptr || devices != nullptr || services != nullptr;
}

Result<std::optional<AuthKey>> Launcher::key_for(const std::string &nic) const {
  if (!is_there()) return std::nullopt;
  const std::pair<const char *, const char *> all[] = {
      {kVnis, vnis}, {kDevices, devices}, {kServices, services}};
  for (const auto &[name, value] : all)
    if (value == nullptr)
      return fail(FI_EINVAL,
                  "cxi: %s is not set, and others of %s, %s and %s are: set it as well, or unset "
                  "them",
                  name, kVnis, kDevices, kServices);
  WEFT_TRY(const std::vector<uint32_t> vni_numbers, numbers_of(kVnis, vnis, 65535));
  WEFT_TRY(const std::vector<uint32_t> ids, numbers_of(kServices, services, UINT32_MAX));
  const std::vector<std::string_view> names = words_of(devices);
  if (names.size() != ids.size())
    return fail(
        FI_EINVAL,
        "cxi: %s is \"%s\", and %s is \"%s\": they need as many words, one service for each "
        "NIC",
        kDevices, devices, kServices, services);
  if (std::ranges::find(names, "") != names.end())
    return fail(FI_EINVAL, "cxi: %s is \"%s\": a name is empty; as %s=cxi0,cxi1 it would do",
                kDevices, devices, kDevices);
  const auto own = std::ranges::find(names, nic);
  if (own == names.end()) return std::nullopt;
  return AuthKey{.service = ids[size_t(own - names.begin())], .vni = Vni(vni_numbers[0])};
}

// ---- the search ----

Result<AuthKey> find_auth_key(const std::string &nic, const std::vector<Service> &services,
                              const User &user, const Launcher &launcher, Vni default_vni) {
  WEFT_TRY(const std::optional<AuthKey> given, launcher.key_for(nic));
  if (given) return *given;
  if (launcher.is_there())
    return fail(FI_EINVAL, "cxi: %s is \"%s\", without %s: use one of those NICs, or give a key",
                kDevices, launcher.devices, nic.c_str());
  const Service *found = newest(services, [&](const Service &one) {
    return std::ranges::any_of(one.members,
                               [&](const auto &m) { return !m.is_group && m.id == user.id; });
  });
  if (found == nullptr)
    found = newest(services, [&](const Service &one) {
      return std::ranges::any_of(one.members,
                                 [&](const auto &m) { return m.is_group && user.is_in(m.id); });
    });
  if (found == nullptr)
    found = newest(services, [](const Service &one) { return one.members.empty(); });
  if (found == nullptr)
    return fail(FI_EPERM,
                "cxi: no service of %s is enabled for user %u: `weft cxi service list` shows them; "
                "enable one, or make one",
                nic.c_str(), user.id);
  return AuthKey{.service = found->id,
                 .vni = allows(*found, default_vni) ? default_vni : found->vnis.front().first};
}

Result<void> check_auth_key(const AuthKey &key, const std::string &nic,
                            const std::vector<Service> &services, const User &user) {
  WEFT_TRY(const Service service, usable_service(services, key.service, user, nic));
  return check_vni(service, key.vni);
}

}  // namespace weft::cxi
