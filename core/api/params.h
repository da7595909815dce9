// SPDX-License-Identifier: BSD-2-Clause
// Parameters that a stock provider library defines for itself (fi_param_define), and the list of
// all (fi_getparams).
//
// Example:
//    size_t tx_size(const weft::Environment &environment) {
//      weft::ParamTable table(environment, [](std::string_view) {});
//      table.define("psm3", "tx_size", FI_PARAM_SIZE_T, "operations per endpoint");
//      size_t size = 4096;
//      table.get("psm3", "tx_size", &size);  // from FI_PSM3_TX_SIZE; -FI_ENODATA: not set
//      return size;
//    }
//
// Values are parsed strictly. A malformed value gives one notice, which says what was expected. The
// units of weft plugins do not use this: their descriptors declare parameters, and the core parses
// the values.
#ifndef WEFT_CORE_API_PARAMS_H
#define WEFT_CORE_API_PARAMS_H

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>
#include <weft/result.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/environment.h"

namespace weft {

// "FI_TCP_IFACE" of "tcp" and "iface"; "FI_HOOK" of "" or "core" and "hook".
std::string variable_name(std::string_view provider, std::string_view name);

// 0/1 yes/no true/false on/off, in any case.
Result<bool> parse_bool(std::string_view text);
// Decimal or 0x..., the whole text.
Result<int> parse_int(std::string_view text);
// As parse_int without sign; a suffix K, M or G multiplies by a power of 1024. "-1" is the largest
// value, as everywhere in OFI.
Result<size_t> parse_size(std::string_view text);

// One line of the list.
struct ParamLine {
  std::string variable;
  fi_param_type type = FI_PARAM_STRING;
  std::string help;
  bool is_set = false;
  std::string value;
};

class ParamTable {
 public:
  ParamTable(const Environment &environment, std::function<void(std::string_view line)> notice);
  ParamTable(const ParamTable &) = delete;
  ParamTable &operator=(const ParamTable &) = delete;

  // A second definition of the same name and type changes nothing. -FI_EINVAL: empty name or help,
  // unknown or other type.
  int define(std::string_view provider, const char *name, fi_param_type type, std::string help);
  // As fi_param_get() in providers/fi_prov.h. A string stays valid as long as the table.
  int get(std::string_view provider, const char *name, void *value);

  std::vector<ParamLine> lines() const;  // what was defined, in order of definition

 private:
  struct Defined {
    std::string variable;
    fi_param_type type;
    std::string help;
    const std::string *text;  // in the environment, NULL if not set
  };

  const Environment &environment_;
  std::function<void(std::string_view line)> notice_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Defined>> defined_;
  std::map<std::string, Defined *, std::less<>> by_variable_;
};

// fi_getparams(): one block from malloc(), strings included, so that fi_freeparams() is free().
// NULL: no memory.
fi_param *make_param_array(const std::vector<ParamLine> &lines) noexcept;

}  // namespace weft

#endif
