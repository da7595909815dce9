// SPDX-License-Identifier: BSD-2-Clause
//
// mpi_client PART... [--quick] [--seed N]: runs these parts, one after the other, between one
// MPI_Init and one MPI_Finalize, because the start of the ranks takes longer than most parts.
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

struct Part {
  const char *name;
  void (*run)(client::Session &);
  int thread_level = MPI_THREAD_SINGLE;
};

constexpr Part kParts[] = {{"p2p", client::run_p2p},
                           {"storm", client::run_storm},
                           {"flood", client::run_flood},
                           {"large", client::run_large},
                           {"collectives", client::run_collectives},
                           {"onesided", client::run_onesided},
                           {"comm", client::run_comm},
                           {"threads", client::run_threads, MPI_THREAD_MULTIPLE},
                           {"perf", client::run_perf}};

const Part *find(const char *name) {
  for (const Part &part : kParts) {
    if (std::strcmp(part.name, name) == 0) return &part;
  }
  return nullptr;
}

}  // namespace

int main(int argc, char **argv) {
  std::vector<const Part *> parts;
  std::vector<char *> options = {argv[0]};
  int thread_level = MPI_THREAD_SINGLE;
  for (int i = 1; i < argc; ++i) {
    const Part *part = find(argv[i]);
    if (part == nullptr) {
      options.push_back(argv[i]);  // Session parses the options and refuses unknown ones
      continue;
    }
    parts.push_back(part);
    if (part->thread_level > thread_level) thread_level = part->thread_level;
  }
  if (parts.empty()) {
    std::fprintf(stderr, "usage: mpi_client PART... [--quick] [--seed N]; the parts are");
    for (const Part &part : kParts) std::fprintf(stderr, " %s", part.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  client::Session session(static_cast<int>(options.size()), options.data(), thread_level);
  for (const Part *part : parts) session.run(part->name, part->run);
  return session.finish();
}
