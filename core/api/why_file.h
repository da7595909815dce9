// SPDX-License-Identifier: BSD-2-Clause
// Where a process writes down its fi_getinfo() and fi_fabric() calls for `weft why -- COMMAND`.
//
// Example (statements):
//    weft::WhyFile file("/dev/shm/weft-1000/why-x8Kq1Z", "/usr/lib/x86_64-linux-gnu");  // WEFT_WHY
//    file.write("{}");  // appends a line to <folder>/<host>.<pid>.calls
//
// There is one file per process, also per forked one, so no two processes write to one file. It is
// opened for each line, because programs close descriptors that they do not know. A file begins
// with a line about its process, and has another such line for each new program that the process
// executes. If a line cannot be written, it is lost and the program goes on. Programs with raised
// privileges write no file: their Environment has no WEFT_WHY.
#ifndef WEFT_CORE_API_WHY_FILE_H
#define WEFT_CORE_API_WHY_FILE_H

#include <sys/types.h>

#include <mutex>
#include <string>
#include <string_view>

namespace weft {

class WhyFile {
 public:
  WhyFile(std::string folder, std::string library_folder);
  void write(std::string_view line) noexcept;
  // The line about the process, if it was not written yet.
  void begin() noexcept;

 private:
  bool append(pid_t pid, std::string_view text) const;
  std::string process_line(pid_t pid) const;

  const std::string folder_, library_folder_;
  std::mutex mutex_;
  pid_t begun_ = 0;  // the process whose first line is written
};

}  // namespace weft

#endif
