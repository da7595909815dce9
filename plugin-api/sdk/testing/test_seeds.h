// SPDX-License-Identifier: BSD-2-Clause
// Runs a test once for each of many seeds, in as many processes as there are cores. A seed that
// fails is counted and the others go on. Each failure prints the scenario and how to repeat it.
//
// Example:
//    TEST(Network, Seeds) {
//      run_seeds("Network.Seeds", {.usual = 10'000, .sanitized = 600},
//                [](uint64_t seed, Scenario &scenario) {
//                  scenario.add("%d endpoints", int(seed % 7));
//                  EXPECT_LT(seed % 7, 7u);
//                });
//    }
//
// From the environment: WEFT_SEEDS, how many; WEFT_FIRST_SEED, from which on (0); WEFT_JOBS, in how
// many processes; SEED, this one only, in this process. If a process crashes, that seed fails and a
// new process continues with the next one. Not for tests with threads: it calls fork().
#ifndef WEFT_SDK_TEST_SEEDS_H
#define WEFT_SDK_TEST_SEEDS_H

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"

namespace weft::sdk {

// The scenario of a seed, as text. The parent process can read it after a crash.
class Scenario {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
    if (length_ != 0) append("; ");
    va_list list;
    va_start(list, format);
    char text[256];
    std::vsnprintf(text, sizeof text, format, list);
    va_end(list);
    append(text);
  }
  void clear() { text_[length_ = 0] = 0; }
  const char *text() const { return text_; }

 private:
  void append(const char *text) {
    const size_t n = std::min(std::strlen(text), sizeof text_ - 1 - length_);
    std::memcpy(text_ + length_, text, n);
    text_[length_ += n] = 0;
  }
  char text_[1024] = {};
  size_t length_ = 0;
};

// A number from the environment.
inline uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Seeds {
  uint64_t usual = 0, sanitized = 0;  // numbers of seeds; WEFT_SEEDS overrides them
  uint64_t first = 0;

  uint64_t count() const {
    if (const char *text = std::getenv("WEFT_SEEDS")) return std::strtoull(text, nullptr, 10);
    if (kSanitizer == Sanitizer::kNone) return usual;
    return kSanitizer == Sanitizer::kThread ? sanitized / 4 + 1 : sanitized;
  }
};

using SeedTest = std::function<void(uint64_t seed, Scenario &scenario)>;

namespace detail {

// The state of one process, shared with the parent.
struct SeedJob {
  uint64_t seed = 0;  // under way
  uint64_t done = 0, failed = 0;
  Scenario scenario;
};

inline void report_seed(const char *name, uint64_t seed, const char *scenario, const char *what) {
  const std::vector<std::string> argv = testing::internal::GetArgvs();
  std::fprintf(stderr,
               "seed %llu fails: %s\n  simulated: %s\n  repeat it with: SEED=%llu %s "
               "--gtest_filter=%s\n",
               (unsigned long long)seed, what, scenario, (unsigned long long)seed,
               argv.empty() ? "the test" : argv[0].c_str(), name);
}

// The seeds first, first + step ... below end.
inline void run_job(const char *name, uint64_t first, uint64_t end, uint64_t step,
                    const SeedTest &run, SeedJob &job) {
  for (uint64_t seed = first; seed < end; seed += step) {
    job.seed = seed;
    job.scenario.clear();
    testing::TestPartResultArray results;
    {
      const testing::ScopedFakeTestPartResultReporter collects(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
      run(seed, job.scenario);
    }
    ++job.done;
    std::string what;
    for (int i = 0; i < results.size(); ++i) {
      const testing::TestPartResult &result = results.GetTestPartResult(i);
      if (!result.failed() || what.size() > 2000) continue;
      what += std::string(result.file_name() != nullptr ? result.file_name() : "") + ":" +
              std::to_string(result.line_number()) + ": " + result.summary() + "\n";
    }
    if (what.empty()) continue;
    ++job.failed;
    report_seed(name, seed, job.scenario.text(), what.c_str());
  }
}

}  // namespace detail

inline void run_seeds(const char *name, const Seeds &seeds, const SeedTest &run) {
  using detail::SeedJob;
  if (std::getenv("SEED") != nullptr) {
    Scenario scenario;
    const uint64_t seed = number_of("SEED", 0);
    run(seed, scenario);
    std::fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, scenario.text());
    return;
  }
  const uint64_t first = number_of("WEFT_FIRST_SEED", seeds.first);
  const uint64_t end = first + seeds.count();
  const auto cores = uint64_t(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  const uint64_t step = std::clamp<uint64_t>(number_of("WEFT_JOBS", cores), 1, 256);
  void *const memory = mmap(nullptr, step * sizeof(SeedJob), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED) << strerror(errno);
  auto *const jobs = static_cast<SeedJob *>(memory);
  std::vector<pid_t> children(step, -1);
  const auto begin = [&](uint64_t job, uint64_t from) {
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0) << strerror(errno);
    if (child == 0) {
      // Keep freed memory: thousands of scenarios are built and destroyed.
      mallopt(M_MMAP_THRESHOLD, 32 << 20);
      mallopt(M_TRIM_THRESHOLD, 256 << 20);
      detail::run_job(name, from, end, step, run, jobs[job]);
      std::fflush(nullptr);
      _exit(0);
    }
    children[job] = child;
  };
  for (uint64_t job = 0; job < step; ++job) {
    new (&jobs[job]) SeedJob;
    if (first + job < end) begin(job, first + job);
  }
  uint64_t done = 0, failed = 0;
  for (uint64_t job = 0; job < step; ++job) {
    while (children[job] >= 0) {
      int status = 0;
      ASSERT_EQ(waitpid(children[job], &status, 0), children[job]) << strerror(errno);
      children[job] = -1;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
      char what[100];
      std::snprintf(what, sizeof what, "the process ended by %s %d",
                    WIFSIGNALED(status) ? "signal" : "exit",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      detail::report_seed(name, jobs[job].seed, jobs[job].scenario.text(), what);
      ++jobs[job].done;
      ++jobs[job].failed;
      if (jobs[job].seed + step < end) begin(job, jobs[job].seed + step);
    }
    done += jobs[job].done;
    failed += jobs[job].failed;
  }
  munmap(memory, step * sizeof(SeedJob));
  EXPECT_EQ(done, end - first);
  EXPECT_EQ(failed, 0U) << "seeds failed, of " << done << " from " << first << " on (see above)";
  std::printf("%llu seeds from %llu on, in %llu processes: %llu failed\n", (unsigned long long)done,
              (unsigned long long)first, (unsigned long long)step, (unsigned long long)failed);
}

}  // namespace weft::sdk

#endif
