// SPDX-License-Identifier: BSD-2-Clause
#include "cpus.h"

#include <absl/strings/str_cat.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <fstream>

#include "bench.h"

namespace weft::bench {

namespace {

// The first CPU of the core to which `cpu` belongs.
int core_of(int cpu) {
  std::ifstream file(
      absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
  int first = cpu;
  file >> first;
  return first;
}

}  // namespace

void pin_to(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    fail("cannot pin to CPU %d: %s (taskset -p $$ shows the allowed ones)", cpu, strerror(errno));
  }
}

std::vector<int> choose_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  }
  for (int cpu : allowed) {
    if (core_of(cpu) != core_of(allowed[0])) return {allowed[0], cpu};
  }
  if (allowed.size() >= 2) return {allowed[0], allowed[1]};
  return {};
}

uint64_t cpu_wait_ns() {
  std::ifstream file("/proc/thread-self/schedstat");
  uint64_t running = 0, waiting = 0;
  file >> running >> waiting;
  return file ? waiting : 0;
}

}  // namespace weft::bench
