// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/elf_file.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <fcntl.h>
#include <gelf.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "tools/weft/child.h"

namespace weft::cli {
namespace {

std::string name_at(Elf *elf, size_t section, size_t offset) {
  return std::string(absl::NullSafeStringView(elf_strptr(elf, section, offset)));
}

bool binds(const GElf_Sym &symbol) {
  const unsigned char binding = GELF_ST_BIND(symbol.st_info);
  const unsigned char visibility = GELF_ST_VISIBILITY(symbol.st_other);
  return symbol.st_shndx != SHN_UNDEF &&
         // The name of a version in a map file is an absolute symbol.
         symbol.st_shndx != SHN_ABS &&
         (binding == STB_GLOBAL || binding == STB_WEAK || binding == STB_GNU_UNIQUE) &&
         (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

// The dynamic linker that started this program.
std::string dynamic_linker() {
  struct Search {
    uintptr_t base;
    std::string path;
  } search{getauxval(AT_BASE), {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *arg) {
        auto *search = static_cast<Search *>(arg);
        if (info->dlpi_addr == search->base && info->dlpi_name != nullptr)
          search->path = info->dlpi_name;
        return 0;
      },
      &search);
  return search.path;
}

}  // namespace

Result<ElfFacts> read_elf(const std::string &path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return fail(errno, "%s: %s", path.c_str(), std::strerror(errno));
  const absl::Cleanup close_file = [file] { close(file); };
  elf_version(EV_CURRENT);
  const std::unique_ptr<Elf, decltype(&elf_end)> elf(elf_begin(file, ELF_C_READ, nullptr),
                                                     &elf_end);
  GElf_Ehdr header;
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF ||
      gelf_getehdr(elf.get(), &header) == nullptr)
    return fail(FI_EINVAL, "%s is no ELF file: give a shared object", path.c_str());
  if (header.e_type != ET_DYN)
    return fail(FI_EINVAL, "%s is no shared object: link it with -shared", path.c_str());
  ElfFacts facts;
  bool dynamic = false;
  for (Elf_Scn *section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
    GElf_Shdr shape;
    if (gelf_getshdr(section, &shape) == nullptr) continue;
    if (shape.sh_type != SHT_DYNSYM && shape.sh_type != SHT_DYNAMIC) continue;
    Elf_Data *data = elf_getdata(section, nullptr);
    if (data == nullptr || shape.sh_entsize == 0)
      return fail(FI_EINVAL, "%s is damaged (%s): build or copy it again", path.c_str(),
                  elf_errmsg(-1));
    const int count =
        static_cast<int>(std::min<uint64_t>(data->d_size / shape.sh_entsize, 1 << 22));
    for (int i = 0; i < count; ++i) {
      GElf_Sym symbol;
      GElf_Dyn entry;
      if (shape.sh_type == SHT_DYNSYM) {
        if (gelf_getsym(data, i, &symbol) != nullptr && binds(symbol))
          facts.exported.push_back(name_at(elf.get(), shape.sh_link, symbol.st_name));
      } else if (gelf_getdyn(data, i, &entry) != nullptr) {
        dynamic = true;
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_NEEDED)
          facts.needed.push_back(name_at(elf.get(), shape.sh_link, entry.d_un.d_val));
      }
    }
  }
  if (!dynamic)
    return fail(FI_EINVAL,
                "%s has no section .dynamic: it was cut short, or its section table stripped; "
                "build or copy it again",
                path.c_str());
  return facts;
}

Result<Missing> try_linking(const std::string &path) {
  const std::string linker = dynamic_linker();
  if (linker.empty()) return fail(FI_ENOSYS, "this program runs without a dynamic linker");
  // As ldd -r does: load and relocate, but run no code.
  WEFT_TRY(const ChildResult result,
           run_child({linker, path},
                     {{"LD_TRACE_LOADED_OBJECTS", "1"}, {"LD_WARN", "yes"}, {"LD_BIND_NOW", "yes"}},
                     std::chrono::seconds(30)));
  Missing missing;
  const auto add = [](std::vector<std::string> &list, absl::string_view name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.emplace_back(name);
  };
  for (const std::string *text : {&result.out, &result.err}) {
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      line = absl::StripLeadingAsciiWhitespace(line);
      if (absl::ConsumePrefix(&line, "undefined symbol: ")) {
        // "name, version V (file)" or "name (file)".
        add(missing.symbols, line.substr(0, line.find_first_of(", \t")));
      } else if (const size_t at = line.find(" => not found"); at != absl::string_view::npos) {
        add(missing.libraries, line.substr(0, at));
      }
    }
  }
  if (result.status != 0 && missing.libraries.empty() && missing.symbols.empty())
    return fail(FI_EINVAL, "the dynamic linker refuses it: %s",
                result.err.substr(0, result.err.find('\n')).c_str());
  return missing;
}

}  // namespace weft::cli
