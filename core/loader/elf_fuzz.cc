// SPDX-License-Identifier: BSD-2-Clause
#include <cstdint>

#include "core/loader/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header =
      weft::parse_elf_header(bytes.first(std::min(size, weft::kElfHeaderSize)), size);
  if (header)
    (void)weft::check_program_headers(
        *header, bytes.subspan(header->program_offset, header->program_size), size);
  return 0;
}
