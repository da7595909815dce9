// SPDX-License-Identifier: BSD-2-Clause
// For tests of the SDK's objects: an instance with a core that only counts, a domain without a
// provider, a handler over an eventfd, and waits that end.
//
// Example (statements):
//    TestDomain domain;
//    auto cq = Cq::open(domain.context, nullptr, nullptr);
//    Event event;  // a Handler
//    Guard guard(domain.engine.lock());
//    domain.engine.add(event, event.fd(), EPOLLIN, 0);
//    event.signal();
//    domain.engine.progress();  // event.seen() is 1 now
//
// Not for tests that need the real core: those are in tests/.
#ifndef WEFT_SDK_TEST_INSTANCE_H
#define WEFT_SDK_TEST_INSTANCE_H

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::sdk {

// Longer than any wait needs, even on a loaded machine and under a sanitizer.
inline constexpr std::chrono::seconds kPatience{60};
inline constexpr int kPatienceMs = 60'000;

// Puts any number into an enum, as an application in C can.
template <class Enum>
void put(Enum &out, int number) {
  static_assert(sizeof out == sizeof number);
  std::memcpy(&out, &number, sizeof number);
}

// A context that is a number.
inline void *ctx(size_t i) {
  return reinterpret_cast<void *>(i);
}

// Waits until `condition` holds. Returns false on timeout.
inline bool eventually(const std::function<bool()> &condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    sched_yield();
  }
  return true;
}

inline bool readable(int fd, int timeout_ms = 0) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) > 0;
}

inline size_t open_files() {
  size_t n = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

// No file can be opened while an object of this class exists.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    const int lowest = dup(0);
    ::close(lowest);
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = rlim_t(lowest);
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

  // Calls it in a new thread: a thread that has called before may have the descriptor that its
  // calls need. Not std::thread, whose start the sanitizers check through a descriptor.
  template <class F>
  void in_another_thread(F call) {
    pthread_t thread;
    const auto body = [](void *f) -> void * {
      (*static_cast<F *>(f))();
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, nullptr, body, &call), 0);
    pthread_join(thread, nullptr);
  }

 private:
  rlimit before_;
};

// A thread that a test can watch fall asleep in the kernel.
class Sleeper {
 public:
  explicit Sleeper(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          tid_ = pid_t(syscall(SYS_gettid));
          work();
          done_ = true;
        }) {}
  ~Sleeper() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  bool done() const { return done_; }
  bool eventually_done() const {
    return eventually([this] { return done(); });
  }
  // Waits until the thread sleeps in poll(2), or is done. Not for work that waits long for a lock.
  bool eventually_asleep() const {
    return eventually([this] { return done() || (tid_ != 0 && in_poll()); });
  }

 private:
  bool in_poll() const {
    const std::string task = "/proc/self/task/" + std::to_string(tid_);
    // The number of the system call, if the kernel tells it; else only that the thread sleeps.
    if (FILE *file = std::fopen((task + "/syscall").c_str(), "r")) {
      long number = -1;
      const int got = std::fscanf(file, "%ld", &number);
      std::fclose(file);
      if (got == 1) return number == SYS_poll || number == SYS_ppoll;
    }
    FILE *file = std::fopen((task + "/stat").c_str(), "r");
    if (file == nullptr) return false;
    char state = 0;
    const int got = std::fscanf(file, "%*d (%*[^)]) %c", &state);
    std::fclose(file);
    return got == 1 && state == 'S';
  }

  std::atomic<pid_t> tid_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// An instance of no plugin. Objects that were published and not retired are `alive`.
class TestInstance {
 public:
  TestInstance() {
    instance_.magic = WEFT_INSTANCE_MAGIC;
    instance_.struct_size = sizeof instance_;
    instance_.core = &kCore;
    instance_.plugin_state = this;
    instance_.stack = "test";
  }
  TestInstance(const TestInstance &) = delete;
  TestInstance &operator=(const TestInstance &) = delete;
  ~TestInstance() { EXPECT_EQ(alive.load(), 0) << "objects left open"; }

  const weft_instance *c() const { return &instance_; }
  std::vector<std::string> log() {
    std::lock_guard guard(mutex_);
    return log_;
  }

  std::atomic<int> alive{0};
  std::atomic<bool> refuse{false};  // the core refuses the next objects

 private:
  static TestInstance &of(const weft_instance *instance) {
    return *static_cast<TestInstance *>(instance->plugin_state);
  }
  static int32_t log_enabled(const weft_instance *, int32_t level, int32_t) { return level == 0; }
  static void add_line(const weft_instance *instance, int32_t, int32_t, const char *, int32_t,
                       const char *text) {
    TestInstance &self = of(instance);
    std::lock_guard guard(self.mutex_);
    self.log_.push_back(text);
  }
  static int32_t opened(struct fid *fid, struct fid *, weft_error *why) {
    EXPECT_EQ(header_of(fid)->magic, WEFT_FID_MAGIC);
    TestInstance &self = of(header_of(fid)->instance);
    if (self.refuse) {
      snprintf(why->text, sizeof why->text, "refused by the test");
      return -FI_EOTHER;
    }
    ++self.alive;
    return 0;
  }
  static void closing(struct fid *fid) { --of(header_of(fid)->instance).alive; }

  static constexpr weft_core_services kCore = {
      .struct_size = sizeof(weft_core_services),
      .log_enabled = log_enabled,
      .log = add_line,
      .object_opened = opened,
      .object_closing = closing,
  };

  weft_instance instance_{};
  std::mutex mutex_;
  std::vector<std::string> log_;
};

// What a provider's domain gives to the objects of the SDK.
class TestDomain {
 public:
  explicit TestDomain(uint32_t api_version = FI_VERSION(2, 6), bool locked = true)
      : engine(locked) {
    context.instance = instance.c();
    context.fid = &fid;
    context.engine = &engine;
    context.api_version = api_version;
  }
  ~TestDomain() { EXPECT_EQ(context.children.load(), 0u); }

  TestInstance instance;
  struct fid fid {};
  Engine engine;
  DomainContext context;
};

// A handler over an eventfd: signal() makes it readable, on_event() reads it.
class Event final : public Handler {
 public:
  Event() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Event() { ::close(fd_); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  int fd() const { return fd_; }
  void signal() const { ASSERT_EQ(eventfd_write(fd_, 1), 0); }
  int calls() const { return calls_; }      // of on_event
  int seen() const { return seen_; }        // calls that found something to read
  int flushes() const { return flushes_; }  // calls of on_flush
  int deadlines() const { return deadlines_; }
  uint32_t last_events() const { return last_events_; }

  std::function<void()> then;        // called when something was read
  std::function<void()> then_flush;  // called by on_flush
  std::function<void()> then_deadline;
  bool keep = false;  // leave it readable

  void on_event(uint32_t events) override {
    last_events_ = events;
    ++calls_;
    if (keep) {
      if (!readable(fd_)) return;
    } else {
      eventfd_t value;
      if (eventfd_read(fd_, &value) != 0) return;
    }
    ++seen_;
    if (auto call = then) call();  // a copy: it may destroy this handler
  }
  void on_flush() override {
    ++flushes_;
    if (auto call = then_flush) call();
  }
  void on_deadline() override {
    ++deadlines_;
    if (auto call = then_deadline) call();
  }

 private:
  const int fd_;
  std::atomic<int> calls_{0}, seen_{0}, flushes_{0}, deadlines_{0};
  std::atomic<uint32_t> last_events_{0};
};

// An engine with one event, as a domain with one endpoint: what wait objects and queues watch.
struct EventSource {
  EventSource() {
    Guard guard(engine.lock());
    engine.add(event, event.fd(), EPOLLIN, EPOLLIN);
  }
  ~EventSource() {
    Guard guard(engine.lock());
    engine.remove(event);
  }
  void progress() {
    Guard guard(engine.lock());
    engine.progress();
  }
  Engine engine{true};
  Event event;
};

}  // namespace weft::sdk

#endif
