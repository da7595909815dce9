// SPDX-License-Identifier: BSD-2-Clause
// Any bytes as a process's trace file and as a saved trace, then all that `weft trace report` and
// `weft trace convert` make of them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "tests/fuzz/odd_numbers.h"
#include "tools/trace/convert.h"
#include "tools/trace/report.h"
#include "tools/trace/snapshot.h"
#include "tools/trace/timeline.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::trace;
  // Aligned, as a mapping is.
  std::vector<uint64_t> words((size + 7) / 8);
  if (size > 0) std::memcpy(words.data(), data, size);
  const auto *bytes = reinterpret_cast<const uint8_t *>(words.data());
  // As a file.
  const int fd = memfd_create("trace", MFD_CLOEXEC);
  if (fd >= 0) {
    if (write(fd, data, size) == ssize_t(size)) {
      const std::string path = "/proc/self/fd/" + std::to_string(fd);
      (void)read_header(path);
      if (auto file = read_any(path)) (void)to_saved(*file);
    }
    close(fd);
  }
  std::vector<Snapshot> processes;
  if (auto one = read_bytes({bytes, size})) processes.push_back(std::move(*one));
  if (auto saved = parse_saved({reinterpret_cast<const char *>(data), size})) {
    for (Snapshot &process : *saved) processes.push_back(std::move(process));
  }
  if (processes.empty()) return 0;
  const Timeline timeline = build_timeline(processes);
  (void)to_text(make_report(timeline));
  for (const Form form : {Form::kPerfetto, Form::kChrome, Form::kCsv}) {
    std::ostringstream out;
    write_trace(timeline, form, out);
  }
  return 0;
}
