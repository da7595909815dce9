// SPDX-License-Identifier: BSD-2-Clause
// Judges an ELF file before the dynamic linker sees it: the stage architecture.
//
// Example:
//    weft::Checked<void> check(std::span<const std::byte> first_bytes,
//                              std::span<const std::byte> at_header_phoff, uint64_t file_size) {
//      const weft::Checked<weft::ElfHeader> header =
//          weft::parse_elf_header(first_bytes, file_size);
//      if (!header) return tl::unexpected(header.error());
//      return weft::check_program_headers(*header, at_header_phoff, file_size);
//    }
//
// Total functions over bytes that may be anything. They find what dlopen() reports badly or not at
// all: another machine, a file cut short by a full disk (whose pages end in SIGBUS), no ELF at all.
// What they accept may still be refused by dlopen().
#ifndef WEFT_CORE_LOADER_ELF_H
#define WEFT_CORE_LOADER_ELF_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

inline constexpr size_t kElfHeaderSize = 64;

struct ElfHeader {
  uint64_t program_offset = 0;  // the table lies within the file
  size_t program_size = 0;      // bytes, at most 65534 * 56
};

// `bytes`: the first kElfHeaderSize bytes of the file, or all of a shorter one.
Checked<ElfHeader> parse_elf_header(std::span<const std::byte> bytes, uint64_t file_size);

// `table`: the program_size bytes at program_offset.
Checked<void> check_program_headers(const ElfHeader &header, std::span<const std::byte> table,
                                    uint64_t file_size);

// Both, on an open file. Reads two small pieces of it.
Checked<void> check_elf(int fd, uint64_t file_size);

}  // namespace weft

#endif
