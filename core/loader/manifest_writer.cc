// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/manifest_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace weft {
namespace {

// Every text is double-quoted: no plugin can choose a name that YAML reads as something else (no,
// 1e3, ~).
std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;  // control characters were replaced when the descriptor was read
  }
  return out + '"';
}

const char *kind_word(uint32_t kind) {
  return kind == WEFT_KIND_PROVIDER ? "provider" : kind == WEFT_KIND_LAYER ? "layer" : "hook";
}

const char *maturity_word(uint32_t maturity) {
  return maturity == WEFT_MATURITY_STABLE ? "stable"
         : maturity == WEFT_MATURITY_BETA ? "beta"
                                          : "experimental";
}

const char *security_word(uint32_t security) {
  return security == WEFT_SECURITY_NO_NETWORK ? "no_network"
         : security == WEFT_SECURITY_ROBUST   ? "robust"
                                              : "trusted_peers";
}

const char *type_word(uint32_t type) {
  static constexpr const char *words[] = {"bool", "int", "size", "string", "list"};
  return words[type - WEFT_TYPE_BOOL];
}

std::string ep_list(uint32_t bits) {
  std::string out;
  const auto add = [&](uint32_t type, const char *word) {
    if (bits & WEFT_EP_BIT(type)) out += (out.empty() ? "" : ", ") + std::string(word);
  };
  add(FI_EP_MSG, "msg");
  add(FI_EP_RDM, "rdm");
  add(FI_EP_DGRAM, "dgram");
  return "[" + out + "]";
}

void append_unit(std::string &out, const UnitInfo &unit) {
  out += "  - name: " + yaml_quoted(unit.name) + "\n";
  out += "    ofi_name: " + yaml_quoted(unit.ofi_name) + "\n";
  out += std::string("    kind: ") + kind_word(unit.kind) + "\n";
  out += "    version: \"" + std::to_string(FI_MAJOR(unit.version)) + "." +
         std::to_string(FI_MINOR(unit.version)) + "\"\n";
  if (!unit.summary.empty()) out += "    summary: " + yaml_quoted(unit.summary) + "\n";
  out += "    needs_ep: " + ep_list(unit.needs_ep) + "\n";
  if (unit.kind == WEFT_KIND_LAYER)
    out += "    inner_min: " + std::to_string(unit.inner_min) +
           "\n    inner_max: " + std::to_string(unit.inner_max) + "\n";
  out += "    offers_ep: " + ep_list(unit.offers_ep) + "\n";
  out += "    rank: " + std::to_string(unit.rank) + "\n";
  out += std::string("    maturity: ") + maturity_word(unit.maturity) + "\n";
  out += std::string("    security: ") + security_word(unit.security) + "\n";
  out += "    devices: [";
  for (const std::string &device : unit.devices)
    out += (&device == &unit.devices.front() ? "" : ", ") + yaml_quoted(device);
  out += "]\n";
  if (!unit.device_remedy.empty())
    out += "    device_remedy: " + yaml_quoted(unit.device_remedy) + "\n";
  out += "    params:";
  if (unit.params.empty()) out += " []";
  out += "\n";
  for (const ParamInfo &param : unit.params) {
    out += "      - name: " + yaml_quoted(param.name) + "\n";
    out += std::string("        type: ") + type_word(param.type) + "\n";
    if (param.has_default) out += "        default: " + yaml_quoted(param.default_value) + "\n";
    if (param.minimum != 0 || param.maximum != 0)
      out += "        minimum: " + std::to_string(param.minimum) +
             "\n        maximum: " + std::to_string(param.maximum) + "\n";
    if (!param.help.empty()) out += "        help: " + yaml_quoted(param.help) + "\n";
  }
}

}  // namespace

std::string_view machine_arch() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
  return "ppc64le";
#elif defined(__riscv) && __riscv_xlen == 64
  return "riscv64";
#else
#error "add this architecture here and in elf.cc"
#endif
}

std::string manifest_yaml(const PluginRecord &record, const std::string &library) {
  std::string out =
      "# Generated from the descriptor of the library by weft-probe --manifest.\nmanifest: 1\n";
  out += "name: " + yaml_quoted(record.name) + "\n";
  out += "vendor: " + yaml_quoted(record.vendor) + "\n";
  out += "version: " + yaml_quoted(record.version) + "\n";
  out += "license: " + yaml_quoted(record.license) + "\n";
  if (!record.support.empty()) out += "support: " + yaml_quoted(record.support) + "\n";
  out += "library: " + yaml_quoted(library) + "\n";
  out += "arch: " + std::string(machine_arch()) + "\n";
  out += "abi: {major: " + std::to_string(record.abi_major) +
         ", minor: " + std::to_string(record.abi_minor) +
         ", min_core_minor: " + std::to_string(record.min_core_minor) + "}\n";
  out += "units:\n";
  for (const UnitInfo &unit : record.units) append_unit(out, unit);
  return out;
}

Result<void> write_atomically(const std::string &path, std::string_view content) {
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0)
    return fail(errno, "cannot make a file beside %s: %s: make the folder writable", path.c_str(),
                strerror(errno));
  const auto give_up = [&](const char *what) {
    const int error = errno;
    close(fd);
    unlink(temporary.c_str());
    return fail(error, "cannot %s %s: %s", what, path.c_str(), strerror(error));
  };
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return give_up("write");
    done += static_cast<size_t>(n);
  }
  // mkstemp's 0600 would hide the file from other users.
  if (fchmod(fd, 0644) != 0) return give_up("set the mode of");
  if (rename(temporary.c_str(), path.c_str()) != 0) return give_up("replace");
  close(fd);
  return {};
}

}  // namespace weft
