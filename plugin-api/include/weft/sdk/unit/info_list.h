// SPDX-License-Identifier: BSD-2-Clause
// InfoList: the answer to getinfo, a list of struct fi_info that frees itself.
//
// Example:
//    #include <netinet/in.h>
//    weft::Result<InfoList> answer(const weft_instance *instance, const sockaddr_in &address) {
//      InfoList list(instance->core);
//      WEFT_TRY(fi_info *const info, list.add());  // has all attributes, all zero
//      info->caps = FI_MSG | FI_SEND | FI_RECV;
//      WEFT_CHECK(set_string(info->domain_attr->name, "eth0"));
//      WEFT_CHECK(set_address(info->src_addr, info->src_addrlen, &address, sizeof address));
//      return list;
//    }
//
// Entries come from the core and go back to it, with the memory that hangs on them: give strings,
// addresses and keys only with set_string, set_address and copy_auth_keys. Not for filtering by
// hints: the core does that.
#ifndef WEFT_SDK_UNIT_INFO_LIST_H
#define WEFT_SDK_UNIT_INFO_LIST_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace weft::sdk {

class InfoList {
 public:
  // Takes ownership of `list`, which may be null.
  explicit InfoList(const weft_core_services *core, struct fi_info *list = nullptr) : core_(core) {
    append(list);
  }
  InfoList(InfoList &&other) noexcept { swap(other); }
  InfoList &operator=(InfoList &&other) noexcept {
    swap(other);
    return *this;
  }
  InfoList(const InfoList &) = delete;
  InfoList &operator=(const InfoList &) = delete;
  ~InfoList() {
    if (first_ != nullptr) core_->info_free(first_);
  }

  // A new last entry: zero, or a deep copy.
  Result<struct fi_info *> add() { return add_owned(core_->info_alloc()); }
  Result<struct fi_info *> add_copy(const struct fi_info *info) {
    return add_owned(core_->info_dup(info));
  }
  // Takes ownership of all entries of `list`.
  void append(struct fi_info *list) {
    if (list == nullptr) return;
    (last_ != nullptr ? last_->next : first_) = list;
    for (last_ = list; last_->next != nullptr;) last_ = last_->next;
  }
  void append(InfoList list) { append(list.release()); }

  bool empty() const { return first_ == nullptr; }
  struct fi_info *front() const {
    return first_;
  }  // go on with ->next
  size_t size() const {
    size_t count = 0;
    for (const struct fi_info *info = first_; info != nullptr; info = info->next) ++count;
    return count;
  }

  // Gives the list away: the caller frees it.
  struct fi_info *release() {
    last_ = nullptr;
    return std::exchange(first_, nullptr);
  }

 private:
  Result<struct fi_info *> add_owned(struct fi_info *info) {
    if (info == nullptr) return fail(FI_ENOMEM, "no memory for a struct fi_info");
    append(info);
    return info;
  }
  void swap(InfoList &other) noexcept {
    std::swap(core_, other.core_);
    std::swap(first_, other.first_);
    std::swap(last_, other.last_);
  }

  const weft_core_services *core_ = nullptr;
  struct fi_info *first_ = nullptr;
  struct fi_info *last_ = nullptr;
};

// Replaces a string of an fi_info.
inline Result<void> set_string(char *&member, std::string_view text) {
  char *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (copy == nullptr) return fail(FI_ENOMEM, "no memory for a name of %zu bytes", text.size());
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  std::free(std::exchange(member, copy));
  return {};
}

// Replaces src_addr or dest_addr of an fi_info. A length of 0 clears it.
inline Result<void> set_address(void *&member, size_t &length, const void *address, size_t size) {
  void *copy = nullptr;
  if (size != 0) {
    copy = std::malloc(size);
    if (copy == nullptr) return fail(FI_ENOMEM, "no memory for an address of %zu bytes", size);
    std::memcpy(copy, address, size);
  }
  std::free(std::exchange(member, copy));
  length = size;
  return {};
}

// Copies the authorization keys of the application's info, for an object of the inner provider.
inline Result<void> copy_auth_keys(fi_info &to, const fi_info &from) {
  const auto copy = [](uint8_t *&member, size_t &length, const uint8_t *key,
                       size_t size) -> Result<void> {
    if (key == nullptr || size == 0) return {};
    auto *bytes = static_cast<uint8_t *>(std::malloc(size));
    if (bytes == nullptr) return fail(FI_ENOMEM, "no memory for a key of %zu bytes", size);
    std::memcpy(bytes, key, size);
    std::free(std::exchange(member, bytes));
    length = size;
    return {};
  };
  if (const fi_ep_attr *ep = from.ep_attr; ep != nullptr)
    WEFT_CHECK(
        copy(to.ep_attr->auth_key, to.ep_attr->auth_key_size, ep->auth_key, ep->auth_key_size));
  if (const fi_domain_attr *domain = from.domain_attr; domain != nullptr)
    WEFT_CHECK(copy(to.domain_attr->auth_key, to.domain_attr->auth_key_size, domain->auth_key,
                    domain->auth_key_size));
  return {};
}

// The transmit and receive attributes of hints; all zero without hints.
inline fi_tx_attr tx_hints(const fi_info *hints) {
  return hints != nullptr && hints->tx_attr != nullptr ? *hints->tx_attr : fi_tx_attr{};
}
inline fi_rx_attr rx_hints(const fi_info *hints) {
  return hints != nullptr && hints->rx_attr != nullptr ? *hints->rx_attr : fi_rx_attr{};
}

// The size to offer where applications may ask for more than the usual one: the asked size, up to
// `most`.
inline size_t offered_size(size_t usual, size_t asked, size_t most) {
  return asked > usual && asked <= most ? asked : usual;
}

}  // namespace weft::sdk

#endif
