// SPDX-License-Identifier: BSD-2-Clause
// Notices what a plugin must not do to the process that loads it: signal handlers, threads, open
// files.
//
// Example:
//    std::string watch(void (*load)()) {
//      const weft::SignalTable before = weft::SignalTable::read();
//      load();
//      const weft::SignalTable after = weft::SignalTable::read();
//      std::string text = after.difference(before);  // "installed a handler for SIGSEGV"
//      if (!text.empty()) before.restore(after);
//      return text;
//    }
//
// It counts threads and files. It does not tell whose they are.
#ifndef WEFT_CORE_LOADER_SIDE_EFFECTS_H
#define WEFT_CORE_LOADER_SIDE_EFFECTS_H

#include <signal.h>

#include <array>
#include <cstddef>
#include <string>

namespace weft {

class SignalTable {
 public:
  static constexpr int kSignals = 31;  // the real-time signals do nothing until somebody sends them

  static SignalTable read();
  // The differences from `before`, in words. In a process with threads only a handler that lies in
  // `library` counts, as the application may have changed any other one meanwhile. An empty
  // `library`: everything counts.
  std::string difference(const SignalTable &before, const std::string &library = {}) const;
  // Puts back those that differ in the same sense.
  void restore(const SignalTable &changed, const std::string &library = {}) const;

 private:
  bool differs(int signal, const SignalTable &before, const std::string &library) const;
  std::array<struct sigaction, kSignals + 1> actions_{};
};

// Threads and open files of this process now; 0 where /proc cannot be read.
size_t count_threads();
size_t count_open_files();

}  // namespace weft

#endif
