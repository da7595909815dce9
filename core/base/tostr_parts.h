// SPDX-License-Identifier: BSD-2-Clause
// The parts that the files of tostr share: a bounded text, and how values, bits, addresses and
// members of structs are written into it.
//
// Example:
//    #include "core/base/tostr_names.h"
//    void tell(const fi_ep_attr &attr, char *buffer, size_t size) {
//      weft::tostr::Text text(buffer, size);
//      const weft::tostr::Lines lines{text, 0};
//      lines.title("fi_ep_attr");
//      lines.value("type", weft::tostr::kEpTypes, attr.type);  // "    type: FI_EP_RDM"
//    }
//
// tostr_address.cc writes addresses, tostr_structs.cc structs. Not for other folders: those include
// tostr.h.
#ifndef WEFT_CORE_BASE_TOSTR_PARTS_H
#define WEFT_CORE_BASE_TOSTR_PARTS_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "core/base/tostr_names.h"

namespace weft::tostr {

// A bounded text. Once full it stays full, so that nothing later appears after a cut.
class Text {
 public:
  Text(char *text, size_t size) : at_(text), left_(size) {
    if (left_ > 0) *at_ = '\0';
  }

  __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
    if (left_ == 0) return;
    va_list args;
    va_start(args, format);
    const int written =
        std::vsnprintf(at_, left_, format, args);  // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(args);
    advance(written < 0 ? 0 : static_cast<size_t>(written));
  }

  // For writers that fill a buffer themselves.
  char *at() const { return at_; }
  size_t left() const { return left_; }
  void advance(size_t written) {
    if (written >= left_) {
      left_ = 0;
      return;
    }
    at_ += written;
    left_ -= written;
  }

 private:
  char *at_;
  size_t left_;
};

template <size_t N>
const char *name_of(const Name (&names)[N], uint64_t value) {
  for (const Name &entry : names) {
    if (entry.value == value) return entry.name;
  }
  return nullptr;
}

template <size_t N>
void add_value(Text &text, const Name (&names)[N], uint64_t value) {
  const char *name = name_of(names, value);
  text.add("%s", name != nullptr ? name : "Unknown");
}

// Names of the set bits, joined by commas; what has no name as a number, so that no bit is lost.
template <size_t N>
void add_bits(Text &text, const Name (&names)[N], uint64_t bits) {
  const char *separator = "";
  for (const Name &entry : names) {
    if ((bits & entry.value) == 0) continue;
    text.add("%s%s", separator, entry.name);
    separator = ", ";
    bits &= ~entry.value;
  }
  if (bits != 0) text.add("%s0x%" PRIx64, separator, bits);
}

// Formats and protocols of providers outside the tree have the top bit set.
template <size_t N>
void add_open_value(Text &text, const Name (&names)[N], uint32_t value) {
  if ((value & 0x80000000u) != 0) return text.add("Provider specific");
  add_value(text, names, value);
}

template <class T>
T load(const void *from, size_t offset = 0) {
  T value;
  std::memcpy(&value, static_cast<const char *>(from) + offset, sizeof value);
  return value;
}

// A member's line begins with `indent` four-space steps.
struct Lines {
  Text &text;
  int indent;

  void title(const char *name) const { text.add("%*s%s:\n", 4 * indent, "", name); }
  void key(const char *name) const { text.add("%*s%s: ", 4 * (indent + 1), "", name); }
  void end() const { text.add("\n"); }

  void number(const char *name, uint64_t value) const {
    key(name);
    text.add("%" PRIu64 "\n", value);
  }
  void signed_number(const char *name, int64_t value) const {
    key(name);
    text.add("%" PRId64 "\n", value);
  }
  void hex(const char *name, uint64_t value) const {
    key(name);
    text.add("0x%" PRIx64 "\n", value);
  }
  void string(const char *name, const char *value) const {
    key(name);
    text.add("%s\n", value != nullptr ? value : "(null)");
  }
  void pointer(const char *name, const void *value) const {
    key(name);
    text.add("%p\n", value);
  }
  void version(const char *name, uint32_t value) const {
    key(name);
    text.add("%u.%u\n", FI_MAJOR(value), FI_MINOR(value));
  }
  template <size_t N>
  void value(const char *name, const Name (&names)[N], uint64_t value) const {
    key(name);
    add_value(text, names, value);
    end();
  }
  template <size_t N>
  void bits(const char *name, const Name (&names)[N], uint64_t value) const {
    key(name);
    text.add("[ ");
    add_bits(text, names, value);
    text.add(" ]\n");
  }
};

void add_comp_order(Text &text, uint64_t order);
void add_mr_mode(Text &text, int mode);
void add_address(Text &text, uint32_t format, const void *addr, size_t size);

// A null pointer is written as "(null)". `indent` is that of the title.
void add_info(Text &text, const fi_info &info, int indent);
void add_tx_attr(Text &text, const fi_tx_attr *attr, int indent);
void add_rx_attr(Text &text, const fi_rx_attr *attr, int indent);
void add_ep_attr(Text &text, const fi_ep_attr *attr, int indent);
void add_domain_attr(Text &text, const fi_domain_attr *attr, int indent);
void add_fabric_attr(Text &text, const fi_fabric_attr *attr, int indent);
void add_nic(Text &text, const fid_nic *nic, int indent);
void add_av_attr(Text &text, const fi_av_attr &attr);
void add_cq_attr(Text &text, const fi_cq_attr &attr);
void add_cntr_attr(Text &text, const fi_cntr_attr &attr);
void add_mr_attr(Text &text, const fi_mr_attr &attr);
void add_cq_err_entry(Text &text, const fi_cq_err_entry &entry);

}  // namespace weft::tostr

#endif
