// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/elf.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <vector>

namespace weft {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#else
#error "add this architecture here and in manifest_writer.cc"
#endif
constexpr uint8_t kData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

static_assert(sizeof(Elf64_Ehdr) == kElfHeaderSize);

const char *machine_name(uint16_t machine) {
  switch (machine) {
    case EM_386:
      return "i386";
    case EM_ARM:
      return "arm";
    case EM_X86_64:
      return "x86_64";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64";
    case EM_S390:
      return "s390x";
    case EM_RISCV:
      return "riscv";
    default:
      return "unknown";
  }
}

tl::unexpected<Rejection> truncated(const char *what, uint64_t end, uint64_t file_size) {
  return with_remedy(reject(Stage::kArchitecture,
                            "the file is truncated: its %s end at byte %" PRIu64
                            ", the file has %" PRIu64 " bytes",
                            what, end, file_size),
                     "reinstall the plugin");
}

// offset + size, or the largest number if that overflows.
uint64_t end_of(uint64_t offset, uint64_t size) {
  uint64_t end = 0;
  return __builtin_add_overflow(offset, size, &end) ? UINT64_MAX : end;
}

tl::unexpected<Rejection> not_usable(const char *cause) {
  return with_remedy(reject(Stage::kArchitecture, "%s", cause),
                     "reinstall the plugin, or move the file elsewhere");
}

}  // namespace

Checked<ElfHeader> parse_elf_header(std::span<const std::byte> bytes, uint64_t file_size) {
  if (file_size == 0) return not_usable("the file is empty");
  if (bytes.size() < SELFMAG || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return not_usable("not an ELF file: it does not begin with \\x7fELF");
  if (bytes.size() < kElfHeaderSize) return truncated("ELF header", kElfHeaderSize, file_size);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  // Class and byte order first: they say how to read the rest.
  if (header.e_ident[EI_CLASS] != ELFCLASS64)
    return with_remedy(
        reject(Stage::kArchitecture, "ELF class is %u, this process needs 64-bit (2)",
               header.e_ident[EI_CLASS]),
        "install the plugin for this architecture");
  if (header.e_ident[EI_DATA] != kData)
    return with_remedy(reject(Stage::kArchitecture, "ELF byte order is %u, this machine's is %u",
                              header.e_ident[EI_DATA], kData),
                       "install the plugin for this architecture");
  if (header.e_machine != kMachine)
    return with_remedy(
        reject(Stage::kArchitecture, "built for %s (machine %u), this is %s (machine %u)",
               machine_name(header.e_machine), header.e_machine, machine_name(kMachine), kMachine),
        "install the plugin for this architecture");
  if (header.e_type != ET_DYN)
    return with_remedy(reject(Stage::kArchitecture, "ELF type is %u, a shared object has %u",
                              header.e_type, ET_DYN),
                       "the file is no plugin: move it elsewhere");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 || header.e_phnum == PN_XNUM)
    return not_usable("its ELF header describes no usable program headers");
  const size_t table = size_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (end_of(header.e_phoff, table) > file_size)
    return truncated("program headers", end_of(header.e_phoff, table), file_size);
  // The section headers are the last thing that a linker writes: a file that was cut short lacks
  // them.
  if (header.e_shoff != 0) {
    const uint64_t end = end_of(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize);
    if (end > file_size) return truncated("section headers", end, file_size);
  }
  return ElfHeader{header.e_phoff, table};
}

Checked<void> check_program_headers(const ElfHeader &header, std::span<const std::byte> table,
                                    uint64_t file_size) {
  if (table.size() < header.program_size)
    return truncated("program headers", end_of(header.program_offset, header.program_size),
                     file_size);
  bool load = false, dynamic = false;
  for (size_t at = 0; at + sizeof(Elf64_Phdr) <= header.program_size; at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr program;
    std::memcpy(&program, table.data() + at, sizeof program);
    if (program.p_type != PT_LOAD && program.p_type != PT_DYNAMIC) continue;
    load |= program.p_type == PT_LOAD;
    dynamic |= program.p_type == PT_DYNAMIC;
    const uint64_t end = end_of(program.p_offset, program.p_filesz);
    if (end > file_size) return truncated("segments", end, file_size);
    if (program.p_filesz > program.p_memsz)
      return not_usable("a segment is larger in the file than in memory");
  }
  if (!load || !dynamic) return not_usable("it has nothing to load or no dynamic section");
  return {};
}

Checked<void> check_elf(int fd, uint64_t file_size) {
  const auto read_at = [fd](std::span<std::byte> into, uint64_t offset) -> size_t {
    size_t done = 0;
    while (done < into.size()) {
      const ssize_t n =
          pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  };
  // Header and table lie together in all but rewritten files (patchelf): one read.
  std::array<std::byte, 1024> head;
  const size_t got = read_at(head, 0);
  const std::span<const std::byte> bytes(head.data(), got);
  Checked<ElfHeader> header =
      parse_elf_header(bytes.first(std::min(got, kElfHeaderSize)), file_size);
  if (!header) return tl::unexpected<Rejection>(header.error());
  if (end_of(header->program_offset, header->program_size) <= got)
    return check_program_headers(
        *header, bytes.subspan(header->program_offset, header->program_size), file_size);
  std::vector<std::byte> table(header->program_size);
  table.resize(read_at(table, header->program_offset));
  return check_program_headers(*header, table, file_size);
}

}  // namespace weft
