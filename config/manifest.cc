// SPDX-License-Identifier: BSD-2-Clause
#include "config/manifest.h"

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>

#include "config/schema.h"
#include "config/tree.h"

namespace weft::config {

namespace {

using Key = std::string_view;
constexpr std::array<Key, 10> kManifestKeys = {"manifest", "name",    "vendor",  "version",
                                               "license",  "support", "library", "arch",
                                               "abi",      "units"};
constexpr std::array<Key, 3> kAbiKeys = {"major", "minor", "min_core_minor"};
constexpr std::array<Key, 15> kUnitKeys = {"name",      "ofi_name",      "kind",      "version",
                                           "summary",   "needs_ep",      "inner_min", "inner_max",
                                           "offers_ep", "rank",          "maturity",  "security",
                                           "devices",   "device_remedy", "params"};
constexpr std::array<Key, 6> kParamKeys = {"name", "type", "default", "help", "minimum", "maximum"};
// The order is that of the constants of plugin.h, which count from 1.
constexpr std::array<Key, 3> kKinds = {"provider", "layer", "hook"};
constexpr std::array<Key, 3> kMaturities = {"stable", "beta", "experimental"};
constexpr std::array<Key, 3> kSecurities = {"no_network", "robust", "trusted_peers"};
constexpr std::array<Key, 5> kTypes = {"bool", "int", "size", "string", "list"};
constexpr std::array<Key, 3> kManifestEpTypes = {"msg", "rdm", "dgram"};
constexpr std::array<enum fi_ep_type, 3> kEpValues = {FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM};

static_assert(WEFT_KIND_PROVIDER == 1 && WEFT_KIND_HOOK == 3);
static_assert(WEFT_MATURITY_STABLE == 1 && WEFT_MATURITY_EXPERIMENTAL == 3);
static_assert(WEFT_SECURITY_NO_NETWORK == 1 && WEFT_SECURITY_TRUSTED_PEERS == 3);
static_assert(WEFT_TYPE_BOOL == 1 && WEFT_TYPE_LIST == 5);

class ManifestReader {
 public:
  explicit ManifestReader(Diagnostics &diag) : diag_(diag) {}

  Manifest read(const Node &root) {
    if (root.kind == Node::Kind::kNull) {
      diag_.error(root.where, "the manifest says nothing", "begin it with 'manifest: 1'");
      return {};
    }
    static constexpr std::array<Key, 9> kRequired = {
        "manifest", "name", "vendor", "version", "license", "library", "arch", "abi", "units"};
    read_required(root, "the manifest", kManifestKeys, kRequired, "'key: value' lines",
                  [&](const Node &key, const Node &value) { top(key.text, value); });
    return std::move(manifest_);
  }

 private:
  // read_map, and an error for each key that must be there and is not.
  bool read_required(const Node &node, std::string_view what, Words known, Words required,
                     std::string_view example, const EachEntry &each) {
    std::vector<bool> given(required.size());
    const bool is_map =
        read_map(node, what, known, example, diag_, [&](const Node &key, const Node &value) {
          const auto at = std::find(required.begin(), required.end(), key.text);
          if (at != required.end()) given[static_cast<size_t>(at - required.begin())] = true;
          each(key, value);
        });
    if (!is_map) return false;
    for (size_t i = 0; i < required.size(); ++i)
      if (!given[i])
        diag_.error(node.where, std::string(what) + " has no " + quoted(required[i]), "add it");
    return true;
  }

  template <class T>
  void put(std::optional<T> value, T &out) {
    if (value) out = std::move(*value);
  }

  void top(std::string_view key, const Node &value) {
    if (key == "manifest") {
      if (const auto n = read_integer(value, "'manifest'", 1, 1'000'000, diag_); n && *n != 1)
        diag_.error(value.where, "version " + std::to_string(*n) + " of this format is unknown",
                    "this release reads version 1; generate the manifest with this release");
    } else if (key == "name") {
      if (const auto text = read_text(value, "'name'", diag_))
        if (check_package(value)) manifest_.name = *text;
    } else if (key == "vendor") {
      put(read_text(value, "'vendor'", diag_), manifest_.vendor);
    } else if (key == "version") {
      put(read_text(value, "'version'", diag_), manifest_.version);
    } else if (key == "license") {
      put(read_text(value, "'license'", diag_), manifest_.license);
    } else if (key == "support") {
      manifest_.support = read_text(value, "'support'", diag_);
    } else if (key == "library") {
      put(read_text(value, "'library'", diag_), manifest_.library);
    } else if (key == "arch") {
      if (read_text(value, "'arch'", diag_) && check_param_name(value, "'arch'", diag_))
        manifest_.arch = value.text;
    } else if (key == "abi") {
      abi(value);
    } else {
      units(value);
    }
  }

  bool check_package(const Node &node) { return check_label(node, "'name'", diag_); }

  void abi(const Node &node) {
    read_required(node, "'abi'", kAbiKeys, kAbiKeys, "abi: {major: 1, minor: 0, min_core_minor: 0}",
                  [&](const Node &key, const Node &value) {
                    const bool is_major = key.text == "major";
                    const auto n = read_integer(value, "'abi." + key.text + "'", is_major ? 1 : 0,
                                                std::numeric_limits<uint16_t>::max(), diag_);
                    if (!n) return;
                    (is_major              ? manifest_.abi_major
                     : key.text == "minor" ? manifest_.abi_minor
                                           : manifest_.min_core_minor) = static_cast<uint16_t>(*n);
                  });
  }

  void units(const Node &node) {
    std::map<std::string_view, Where> seen;
    const bool is_list = read_list(node, "'units'", "a list of units", diag_,
                                   [&](const Node &item) { unit(item, seen); });
    if (!is_list) return;
    if (node.items.empty())
      diag_.error(node.where, "the manifest has no units", "a plugin has at least one");
    if (node.items.size() > WEFT_MAX_UNITS)
      diag_.error(node.where, "the manifest has " + std::to_string(node.items.size()) + " units",
                  "the most is " + std::to_string(WEFT_MAX_UNITS));
  }

  void told_twice(std::map<std::string_view, Where> &seen, const Node &name,
                  std::string_view what) {
    const auto [first, is_new] = seen.emplace(name.text, name.where);
    if (!is_new)
      diag_.error(name.where, std::string(what) + " " + quoted(name.text) + " is described twice",
                  "it stands in line " + std::to_string(first->second.line) + " already");
  }

  void unit(const Node &node, std::map<std::string_view, Where> &seen) {
    static constexpr std::array<Key, 5> kRequired = {"name", "kind", "version", "maturity",
                                                     "security"};
    ManifestUnit out;
    Where inner = node.where;
    const auto word = [&](const Node &value, std::string_view what, Words words, uint32_t &to) {
      if (const auto index = read_word(value, what, words, diag_))
        to = static_cast<uint32_t>(*index) + 1;
    };
    read_required(
        node, "a unit", kUnitKeys, kRequired, "{name: tcp, kind: provider, ...}",
        [&](const Node &key_node, const Node &value) {
          const std::string_view key = key_node.text;
          if (key == "name") {
            if (auto name = read_name(value, "'name'", diag_)) {
              told_twice(seen, value, "unit");
              out.name = std::move(*name);
            }
          } else if (key == "ofi_name") {
            out.ofi_name = read_name(value, "'ofi_name'", diag_);
          } else if (key == "kind") {
            word(value, "'kind'", kKinds, out.kind);
          } else if (key == "version") {
            put(unit_version(value), out.version);
          } else if (key == "summary") {
            put(read_prose(value, "'summary'", diag_), out.summary);
          } else if (key == "needs_ep") {
            out.needs_ep = ep_types(value, "'needs_ep'");
          } else if (key == "inner_min" || key == "inner_max") {
            inner = value.where;
            if (const auto n = read_integer(value, quoted(key), 1, WEFT_MAX_INNER, diag_))
              (key == "inner_min" ? out.inner_min : out.inner_max) = static_cast<uint32_t>(*n);
          } else if (key == "offers_ep") {
            out.offers_ep = ep_types(value, "'offers_ep'");
          } else if (key == "rank") {
            if (const auto n = read_integer(value, "'rank'", std::numeric_limits<int32_t>::min(),
                                            std::numeric_limits<int32_t>::max(), diag_))
              out.rank = static_cast<int32_t>(*n);
          } else if (key == "maturity") {
            word(value, "'maturity'", kMaturities, out.maturity);
          } else if (key == "security") {
            word(value, "'security'", kSecurities, out.security);
          } else if (key == "devices") {
            devices(value, out.devices);
          } else if (key == "device_remedy") {
            put(read_prose(value, "'device_remedy'", diag_), out.device_remedy);
          } else {
            params(value, out.params);
          }
        });
    check_inner(out, inner);
    manifest_.units.push_back(std::move(out));
  }

  // A layer that says nothing takes one inner provider.
  void check_inner(ManifestUnit &unit, const Where &where) {
    if (unit.kind == WEFT_KIND_LAYER) {
      if (unit.inner_min == 0) unit.inner_min = 1;
      if (unit.inner_max == 0) unit.inner_max = unit.inner_min;
      if (unit.inner_min > unit.inner_max)
        diag_.error(where,
                    "'inner_min' " + std::to_string(unit.inner_min) + " is above 'inner_max' " +
                        std::to_string(unit.inner_max),
                    "the layer takes from inner_min to inner_max providers");
    } else if (unit.kind != 0 && unit.inner_min + unit.inner_max != 0) {
      diag_.error(where, "a " + std::string(kKinds[unit.kind - 1]) + " takes no inner providers",
                  "remove 'inner_min' and 'inner_max', which are for layers");
    }
  }

  // "1.0" as FI_VERSION(1, 0).
  std::optional<uint32_t> unit_version(const Node &node) {
    const auto text = read_text(node, "'version'", diag_);
    if (!text) return std::nullopt;
    const char *at = text->data(), *const end = at + text->size();
    uint16_t major = 0, minor = 0;
    const auto first = std::from_chars(at, end, major);
    if (first.ec == std::errc() && first.ptr != end && *first.ptr == '.') {
      const auto second = std::from_chars(first.ptr + 1, end, minor);
      if (second.ec == std::errc() && second.ptr == end)
        return FI_VERSION(static_cast<uint32_t>(major), static_cast<uint32_t>(minor));
    }
    diag_.error(node.where, "'version' of a unit must be MAJOR.MINOR, not " + quoted(*text),
                "write it like \"1.0\", each part 0 to 65535");
    return std::nullopt;
  }

  uint32_t ep_types(const Node &node, std::string_view what) {
    uint32_t bits = 0;
    read_list(node, what, "[msg, rdm, dgram]", diag_, [&](const Node &item) {
      if (const auto word = read_word(item, what, kManifestEpTypes, diag_))
        bits |= WEFT_EP_BIT(kEpValues[*word]);
    });
    return bits;
  }

  void devices(const Node &node, std::vector<std::string> &out) {
    read_list(node, "'devices'", "[\"pci:15b3:*\"]", diag_, [&](const Node &item) {
      auto text = read_text(item, "an entry of 'devices'", diag_);
      if (!text) return;
      const size_t colon = text->find(':');
      const bool has_class =
          colon != std::string::npos && colon > 0 && colon + 1 < text->size() &&
          std::all_of(text->begin(), text->begin() + static_cast<ptrdiff_t>(colon),
                      [](char c) { return c >= 'a' && c <= 'z'; });
      if (has_class)
        out.push_back(std::move(*text));
      else
        diag_.error(item.where, quoted(*text) + " is no device",
                    "write it like pci:15b3:*, path:/dev/infiniband/uverbs* or netdev:hsn*");
    });
  }

  void params(const Node &node, std::vector<ManifestParam> &out) {
    std::map<std::string_view, Where> seen;
    read_list(node, "'params'", "[{name: port, type: int}]", diag_,
              [&](const Node &item) { param(item, seen, out); });
  }

  void param(const Node &node, std::map<std::string_view, Where> &seen,
             std::vector<ManifestParam> &all) {
    static constexpr std::array<Key, 2> kRequired = {"name", "type"};
    ManifestParam out;
    Where limits = node.where;
    const auto limit = [&](const Node &value, std::string_view what, int64_t &to) {
      limits = value.where;
      put(read_integer(value, what, std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max(), diag_),
          to);
    };
    read_required(
        node, "a parameter", kParamKeys, kRequired, "{name: port, type: int}",
        [&](const Node &key_node, const Node &value) {
          const std::string_view key = key_node.text;
          if (key == "name") {
            if (read_text(value, "'name'", diag_) && check_param_name(value, "'name'", diag_)) {
              told_twice(seen, value, "parameter");
              out.name = value.text;
            }
          } else if (key == "type") {
            if (const auto index = read_word(value, "'type'", kTypes, diag_))
              out.type = static_cast<uint32_t>(*index) + 1;
          } else if (key == "default") {
            out.default_value = read_value(value, "'default'", diag_);
          } else if (key == "help") {
            put(read_prose(value, "'help'", diag_), out.help);
          } else if (key == "minimum") {
            limit(value, "'minimum'", out.minimum);
          } else {
            limit(value, "'maximum'", out.maximum);
          }
        });
    if (out.minimum > out.maximum)
      diag_.error(limits,
                  "'minimum' " + std::to_string(out.minimum) + " is above 'maximum' " +
                      std::to_string(out.maximum),
                  "give both; both 0 mean no limits");
    else if ((out.minimum != 0 || out.maximum != 0) && out.type != 0 && out.type != WEFT_TYPE_INT &&
             out.type != WEFT_TYPE_SIZE)
      diag_.error(limits, "limits of a parameter that is no number",
                  "only int and size have 'minimum' and 'maximum'");
    all.push_back(std::move(out));
  }

  Diagnostics &diag_;
  Manifest manifest_;
};

}  // namespace

std::optional<Manifest> parse_manifest(std::string_view text, Diagnostics &diag) {
  const std::optional<Node> root = parse_tree(text, diag);
  if (!root) return std::nullopt;
  Manifest manifest = ManifestReader(diag).read(*root);
  if (diag.has_errors()) return std::nullopt;
  return manifest;
}

}  // namespace weft::config
