// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/side_effects.h"

#include <dirent.h>
#include <dlfcn.h>

#include <cstring>

namespace weft {
namespace {

void *address_of(const struct sigaction &action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void *>(action.sa_sigaction)
                                             : reinterpret_cast<void *>(action.sa_handler);
}

std::string file_of(void *address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

size_t count_entries(const char *folder) {
  DIR *dir = opendir(folder);
  if (dir == nullptr) return 0;
  size_t count = 0;
  while (const dirent *entry = readdir(dir)) count += entry->d_name[0] != '.';
  closedir(dir);
  return count;
}

}  // namespace

SignalTable SignalTable::read() {
  SignalTable table;
  for (int signal = 1; signal <= kSignals; ++signal)
    sigaction(signal, nullptr, &table.actions_[signal]);
  return table;
}

bool SignalTable::differs(int signal, const SignalTable &before, const std::string &library) const {
  void *now = address_of(actions_[signal]);
  if (now == address_of(before.actions_[signal])) return false;
  return library.empty() || file_of(now) == library;
}

std::string SignalTable::difference(const SignalTable &before, const std::string &library) const {
  std::string text;
  for (int signal = 1; signal <= kSignals; ++signal) {
    if (!differs(signal, before, library)) continue;
    const char *name = sigabbrev_np(signal);
    text += (text.empty() ? "changed the handling of SIG" : ", SIG");
    text += name != nullptr ? name : std::to_string(signal);
  }
  return text;
}

void SignalTable::restore(const SignalTable &changed, const std::string &library) const {
  for (int signal = 1; signal <= kSignals; ++signal)
    if (changed.differs(signal, *this, library)) sigaction(signal, &actions_[signal], nullptr);
}

size_t count_threads() {
  return count_entries("/proc/self/task");
}

size_t count_open_files() {
  const size_t count = count_entries("/proc/self/fd");
  return count == 0 ? 0 : count - 1;  // without the descriptor of this listing
}

}  // namespace weft
