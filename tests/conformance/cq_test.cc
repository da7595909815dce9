// SPDX-License-Identifier: BSD-2-Clause
// Completion queues (fi_cq.3, fi_poll.3 for fi_trywait): formats, waiting in every way, errors,
// overrun.
#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

constexpr uint64_t kCqData = 0x1020304050607080;

Options receiver(enum fi_cq_format format, enum fi_wait_obj wait = FI_WAIT_NONE) {
  Options options;
  options.rx_cq = Options::cq_attr(format, wait);
  return options;
}

// One message with data, from a to b.
void send_one(Pair &pair, char *in, size_t size) {
  must(fi_recv(pair.b.ep, in, size, nullptr, 0, in));
  must(fi_senddata(pair.a.ep, "hello", 6, nullptr, kCqData, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
}

template <class Entry>
Entry read_one(Pair &pair, fid_cq *cq) {
  struct {
    Entry entry;
    uint8_t guard[64];
  } buffer;
  memset(&buffer, 0x5a, sizeof buffer);
  ssize_t n = 0;
  EXPECT_TRUE(pair.until([&] { return (n = fi_cq_read(cq, &buffer, 1)) != -FI_EAGAIN; }));
  EXPECT_EQ(n, 1);
  for (const uint8_t byte : buffer.guard)
    EXPECT_EQ(byte, 0x5a) << "the entry is longer than its format says";
  return buffer.entry;
}

TEST(CqFormat, Context) {
  NEEDS_REMOTE_DATA(Options{});
  Options options = receiver(FI_CQ_FORMAT_CONTEXT);
  Pair pair(options);
  char in[8];
  send_one(pair, in, sizeof in);
  EXPECT_EQ(read_one<fi_cq_entry>(pair, pair.b.rx_cq).op_context, in);
}

TEST(CqFormat, Msg) {
  NEEDS_REMOTE_DATA(Options{});
  Pair pair(receiver(FI_CQ_FORMAT_MSG));
  char in[8];
  send_one(pair, in, sizeof in);
  const auto entry = read_one<fi_cq_msg_entry>(pair, pair.b.rx_cq);
  EXPECT_EQ(entry.op_context, in);
  EXPECT_EQ(entry.flags & (FI_RECV | FI_MSG), uint64_t(FI_RECV | FI_MSG));
  EXPECT_EQ(entry.len, 6u);
}

TEST(CqFormat, Data) {
  NEEDS_REMOTE_DATA(Options{});
  Pair pair(receiver(FI_CQ_FORMAT_DATA));
  char in[8];
  send_one(pair, in, sizeof in);
  const auto entry = read_one<fi_cq_data_entry>(pair, pair.b.rx_cq);
  EXPECT_EQ(entry.op_context, in);
  EXPECT_EQ(entry.flags & FI_REMOTE_CQ_DATA, uint64_t(FI_REMOTE_CQ_DATA));
  EXPECT_EQ(entry.len, 6u);
  EXPECT_EQ(entry.data, pair.b.arriving(kCqData));
}

TEST(CqFormat, Tagged) {
  NEEDS_REMOTE_DATA(Options{});
  Pair pair(receiver(FI_CQ_FORMAT_TAGGED));
  char in[8];
  send_one(pair, in, sizeof in);
  const auto entry = read_one<fi_cq_tagged_entry>(pair, pair.b.rx_cq);
  EXPECT_EQ(entry.op_context, in);
  EXPECT_EQ(entry.len, 6u);
  EXPECT_EQ(entry.data, pair.b.arriving(kCqData));
}

TEST(CqRead, SeveralAtATimeAndNoMoreThanAskedFor) {
  Pair pair;
  char in[10][8];
  for (auto &buffer : in) must(fi_recv(pair.b.ep, buffer, sizeof buffer, nullptr, 0, buffer));
  for (size_t i = 0; i < std::size(in); ++i) must(fi_inject(pair.a.ep, "x", 2, 0));
  fi_cq_data_entry entries[10];
  size_t got = 0;
  ASSERT_TRUE(pair.until([&] {
    memset(entries, 0x5a, sizeof entries);
    const ssize_t n = fi_cq_read(pair.b.rx_cq, entries, 4);
    if (n == -FI_EAGAIN) return false;
    EXPECT_GT(n, 0);
    EXPECT_LE(n, 4);
    for (ssize_t i = 0; i < n; ++i) EXPECT_EQ(entries[i].op_context, in[got++]);
    const fi_cq_data_entry &next = entries[n];
    EXPECT_EQ(next.len, size_t(0x5a5a5a5a5a5a5a5a));
    return got == std::size(in);
  }));
}

TEST(CqRead, ReadfromSaysThatThereIsNoSource) {
  NEEDS_REMOTE_DATA(Options{});
  Pair pair;
  char in[8];
  send_one(pair, in, sizeof in);
  fi_cq_data_entry entry;
  fi_addr_t source = 7;
  ASSERT_TRUE(pair.until([&] { return fi_cq_readfrom(pair.b.rx_cq, &entry, 1, &source) == 1; }));
  EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
}

TEST(CqRead, ACountOfNothingMakesProgressAndTakesNothing) {
  Pair pair;
  char in[8] = {};
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_send(pair.a.ep, "hello", 6, nullptr, 0, nullptr));
  // Reads of zero entries are the receiver's only progress.
  EXPECT_TRUE(until(
      [&] {
        fi_cq_read(pair.b.rx_cq, nullptr, 0);
        return *static_cast<volatile char *>(in) == 'h';
      },
      {&pair.a}));
  const auto done = poll_cq(pair.b.rx_cq);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->context, in);
}

TEST(CqRead, AnEmptyQueueIsEAGAIN) {
  Pair pair;
  fi_cq_data_entry entry;
  EXPECT_EQ(fi_cq_read(pair.a.tx_cq, &entry, 1), -FI_EAGAIN);
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(pair.a.tx_cq, &error, 0), -FI_EAGAIN);
}

// ---- errors ----

void make_error(Pair &pair, char *in) {
  must(fi_recv(pair.b.ep, in, 2, nullptr, 0, in));
  must(fi_inject(pair.a.ep, "hello", 6, 0));
}

TEST(CqError, AnErrorIsReadSeparatelyAndInOrder) {
  Pair pair;
  char in[3][8];
  must(fi_recv(pair.b.ep, in[0], 8, nullptr, 0, in[0]));
  must(fi_recv(pair.b.ep, in[1], 2, nullptr, 0, in[1]));
  must(fi_recv(pair.b.ep, in[2], 8, nullptr, 0, in[2]));
  for (int i = 0; i < 3; ++i) must(fi_inject(pair.a.ep, "hello", 6, 0));
  fi_cq_data_entry entries[4];
  ssize_t n = 0;
  ASSERT_TRUE(pair.until([&] { return (n = fi_cq_read(pair.b.rx_cq, entries, 4)) != -FI_EAGAIN; }));
  EXPECT_EQ(n, 1) << "up to the error";
  EXPECT_EQ(entries[0].op_context, in[0]);
  ASSERT_TRUE(pair.until([&] { return (n = fi_cq_read(pair.b.rx_cq, entries, 4)) != -FI_EAGAIN; }));
  EXPECT_EQ(n, -FI_EAVAIL);
  EXPECT_EQ(fi_cq_read(pair.b.rx_cq, entries, 4), -FI_EAVAIL) << "until it is read";
  fi_cq_err_entry error{};
  EXPECT_EQ(fi_cq_readerr(pair.b.rx_cq, &error, 0), 1);
  EXPECT_EQ(error.op_context, in[1]);
  EXPECT_TRUE(is_truncation(FI_EP_MSG, error.err)) << error.err;
  // A device ends the connection.
  if (!is_of_a_device(FI_EP_MSG)) {
    EXPECT_EQ(fi_cq_readerr(pair.b.rx_cq, &error, 0), -FI_EAGAIN);
  }
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, in[2]);
}

TEST(CqError, ReaderrWithABufferOfTheApplication) {
  Pair pair;
  char in[8], data[64];
  make_error(pair, in);
  fi_cq_data_entry entry;
  ASSERT_TRUE(pair.until([&] { return fi_cq_read(pair.b.rx_cq, &entry, 1) == -FI_EAVAIL; }));
  fi_cq_err_entry error{};
  error.err_data = data;
  error.err_data_size = sizeof data;
  EXPECT_EQ(fi_cq_readerr(pair.b.rx_cq, &error, 0), 1);
  EXPECT_EQ(error.err_data, data);
  EXPECT_LE(error.err_data_size, sizeof data);
}

TEST(CqError, ReaderrWithoutABuffer) {
  Pair pair;
  char in[8];
  make_error(pair, in);
  fi_cq_data_entry entry;
  ASSERT_TRUE(pair.until([&] { return fi_cq_read(pair.b.rx_cq, &entry, 1) == -FI_EAVAIL; }));
  fi_cq_err_entry error;
  memset(&error, 0x5a, sizeof error);
  error.err_data_size = 0;  // whatever err_data points to is not touched
  EXPECT_EQ(fi_cq_readerr(pair.b.rx_cq, &error, 0), 1);
  EXPECT_TRUE(is_truncation(FI_EP_MSG, error.err)) << error.err;
  if (!is_of_a_device(FI_EP_MSG)) {  // which knows no length
    EXPECT_EQ(error.olen, 4u);
  }
  if (error.err_data_size == 0) {
    EXPECT_EQ(error.err_data, nullptr);
  }
}

TEST(CqError, StrerrorHasAText) {
  Pair pair;
  // prov_errno of a device is the status of its completion.
  const bool device = is_of_a_device(FI_EP_MSG);
  const int one = device ? 1 : FI_ETRUNC, other = device ? 5 : FI_ECANCELED;
  char text[64] = "", small[4] = "zzz";
  EXPECT_STREQ(fi_cq_strerror(pair.a.tx_cq, one, nullptr, text, sizeof text), text);
  EXPECT_NE(std::string(text), "");
  const std::string truncated = text;
  EXPECT_EQ(fi_cq_strerror(pair.a.tx_cq, one, nullptr, nullptr, 0), truncated);
  fi_cq_strerror(pair.a.tx_cq, other, nullptr, text, sizeof text);
  EXPECT_NE(text, truncated);
  fi_cq_strerror(pair.a.tx_cq, one, nullptr, small, sizeof small);
  EXPECT_EQ(small[3], '\0');
  EXPECT_NE(fi_cq_strerror(pair.a.tx_cq, 987654, nullptr, text, sizeof text), nullptr);
}

TEST(CqError, ErrorsAreReportedThoughCompletionsAreSelective) {
  Options options;
  options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  Pair pair(options);
  char in[8];
  make_error(pair, in);
  EXPECT_TRUE(is_truncation(FI_EP_MSG, pair.wait(pair.b.rx_cq).err));
}

// ---- waiting ----

TEST(CqSread, WithoutAWaitObjectIsRefused) {
  Pair pair;
  fi_cq_data_entry entry;
  const ssize_t rc = fi_cq_sread(pair.a.tx_cq, &entry, 1, nullptr, 1000);
  EXPECT_LT(rc, 0);
  EXPECT_NE(rc, -FI_EAGAIN);
}

class CqWait : public ::testing::TestWithParam<enum fi_wait_obj> {
 protected:
  Options options() const {
    Options o;
    o.one_cq = true;
    o.tx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, GetParam());
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(Objects, CqWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(CqWait, SreadTimesOut) {
  Pair pair(options());
  fi_cq_data_entry entry;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_cq_sread(pair.b.tx_cq, &entry, 1, nullptr, 20), -FI_EAGAIN);
  const auto spent = std::chrono::steady_clock::now() - start;
  EXPECT_GE(spent, std::chrono::milliseconds(15));
  EXPECT_LT(spent, std::chrono::seconds(10));
  EXPECT_EQ(fi_cq_sread(pair.b.tx_cq, &entry, 1, nullptr, 0), -FI_EAGAIN);
}

TEST_P(CqWait, SreadReturnsWhatIsThere) {
  Pair pair(options());
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_send(pair.a.ep, "hello", 6, nullptr, 0, nullptr));
  fi_cq_data_entry entry;
  EXPECT_EQ(fi_cq_sread(pair.b.tx_cq, &entry, 1, nullptr, 20000), 1);
  EXPECT_EQ(entry.op_context, in);
  EXPECT_EQ(entry.len, 6u);
  EXPECT_EQ(fi_cq_sread(pair.a.tx_cq, &entry, 1, nullptr, 20000), 1);
}

TEST_P(CqWait, TrafficWakesABlockedReader) {
  NEEDS_WAITING_MESSAGES();
  Pair pair(options());
  constexpr int kRounds = 50;
  // A ping-pong of two threads that both block: each arrival must wake the other.
  const auto play = [&](Side &me, bool first) {
    char in[8], out[8] = "ball";
    fi_cq_data_entry entry;
    int received = 0, sent = 0;
    must(fi_recv(me.ep, in, sizeof in, nullptr, 0, in));
    if (first) must(fi_send(me.ep, out, sizeof out, nullptr, 0, out));
    while (received < kRounds || sent < kRounds) {
      const ssize_t n = fi_cq_sread(me.tx_cq, &entry, 1, nullptr, 20000);
      if (n != 1)
        throw std::runtime_error("fi_cq_sread: " + error_text(n) + " after " +
                                 std::to_string(received));
      if (entry.op_context == out) {
        ++sent;
        continue;
      }
      ++received;
      if (received < kRounds) must(fi_recv(me.ep, in, sizeof in, nullptr, 0, in));
      if (!first || received < kRounds) must(fi_send(me.ep, out, sizeof out, nullptr, 0, out));
    }
  };
  in_two_threads([&] { play(pair.a, true); }, [&] { play(pair.b, false); });
}

TEST_P(CqWait, SignalWakesABlockedReader) {
  Pair pair(options());
  ssize_t rc = 1;
  std::atomic<bool> over{false};
  const auto start = std::chrono::steady_clock::now();
  std::thread reader([&] {
    fi_cq_data_entry entry;
    rc = fi_cq_sread(pair.b.tx_cq, &entry, 1, nullptr, 25000);
    over = true;
  });
  while (!over) {
    EXPECT_EQ(fi_cq_signal(pair.b.tx_cq), 0);
    std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(rc, -FI_EAGAIN);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_P(CqWait, AnErrorWakesABlockedReader) {
  Pair pair(options());
  char in[8];
  must(fi_recv(pair.b.ep, in, 2, nullptr, 0, in));
  ssize_t rc = 1;
  std::thread reader([&] {
    fi_cq_data_entry entry;
    rc = fi_cq_sread(pair.b.tx_cq, &entry, 1, nullptr, 20000);
  });
  must(fi_inject(pair.a.ep, "hello", 6, 0));
  reader.join();
  EXPECT_EQ(rc, -FI_EAVAIL);
}

TEST_P(CqWait, CancellingWakesABlockedReader) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device does not give receives back");
  Pair pair(options());
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  ssize_t rc = 1;
  std::thread reader([&] {
    fi_cq_data_entry entry;
    rc = fi_cq_sread(pair.b.tx_cq, &entry, 1, nullptr, 20000);
  });
  must(fi_cancel(pair.b.ep.fid(), in));
  reader.join();
  EXPECT_EQ(rc, -FI_EAVAIL);
}

// How the application blocks by itself: ask fi_trywait, then wait on the object that FI_GETWAIT
// gave.
class NativeWait {
 public:
  NativeWait(Side &side, fid_cq *cq, enum fi_wait_obj type)
      : fabric_(side.fabric), fid_(&cq->fid), type_(type) {
    if (type == FI_WAIT_FD) {
      fd_.fd = -1;
      must(fi_control(fid_, FI_GETWAIT, &fd_.fd));
      fd_.events = POLLIN;
    } else {
      // Called with no room it says how many there are.
      fi_wait_pollfd wanted{};
      wanted.fd = nullptr;
      wanted.nfds = 0;
      const int rc = fi_control(fid_, FI_GETWAIT, &wanted);
      EXPECT_EQ(rc, -FI_ETOOSMALL);
      descriptors_.resize(wanted.nfds);
    }
  }
  // False: it timed out.
  bool block(int timeout_ms) {
    const int rc = fi_trywait(fabric_, &fid_, 1);
    if (rc == -FI_EAGAIN) return true;
    must(rc);
    if (type_ == FI_WAIT_FD) return ::poll(&fd_, 1, timeout_ms) > 0;
    fi_wait_pollfd now{};
    now.fd = descriptors_.data();
    now.nfds = descriptors_.size();
    must(fi_control(fid_, FI_GETWAIT, &now));
    return ::poll(now.fd, nfds_t(now.nfds), timeout_ms) > 0;
  }

 private:
  fid_fabric *fabric_;
  fid *fid_;
  enum fi_wait_obj type_;
  pollfd fd_{};
  std::vector<pollfd> descriptors_;
};

class CqNative : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, CqNative, ::testing::Values(FI_WAIT_FD, FI_WAIT_POLLFD));

TEST_P(CqNative, TrywaitThenPollMissesNothing) {
  NEEDS_WAITING_MESSAGES();
  Options options;
  options.one_cq = true;
  options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, GetParam());
  Pair pair(options);
  constexpr int kRounds = 300;
  const auto play = [&](Side &me, bool first) {
    NativeWait wait(me, me.tx_cq, GetParam());
    char in[8], out[8] = "ball";
    int received = 0, sent = 0;
    must(fi_recv(me.ep, in, sizeof in, nullptr, 0, in));
    if (first) must(fi_send(me.ep, out, sizeof out, nullptr, 0, out));
    while (received < kRounds || sent < kRounds) {
      const auto done = poll_cq(me.tx_cq);
      if (!done) {
        if (!wait.block(20000))
          throw std::runtime_error("asleep after " + std::to_string(received));
        continue;
      }
      must(-done->err);
      if (done->context == out) {
        ++sent;
        continue;
      }
      ++received;
      if (received < kRounds) must(fi_recv(me.ep, in, sizeof in, nullptr, 0, in));
      if (!first || received < kRounds) must(fi_send(me.ep, out, sizeof out, nullptr, 0, out));
    }
  };
  in_two_threads([&] { play(pair.a, true); }, [&] { play(pair.b, false); });
}

TEST_P(CqNative, TrywaitSaysThatSomethingIsThere) {
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, GetParam());
  Pair pair(options);
  fid *fids[] = {pair.b.rx_cq.fid()};
  EXPECT_EQ(fi_trywait(pair.b.fabric, fids, 1), 0);
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_inject(pair.a.ep, "hello", 6, 0));
  EXPECT_TRUE(until([&] { return fi_trywait(pair.b.fabric, fids, 1) == -FI_EAGAIN; }, {&pair.a}));
  EXPECT_EQ(fi_trywait(pair.b.fabric, fids, 1), -FI_EAGAIN);
  EXPECT_TRUE(poll_cq(pair.b.rx_cq).has_value());
  EXPECT_EQ(fi_trywait(pair.b.fabric, fids, 1), 0);
}

TEST(CqMutexCond, TheConditionIsSignalled) {
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_MUTEX_COND);
  Pair pair(options);
  fi_mutex_cond wait{};
  must(fi_control(pair.b.rx_cq.fid(), FI_GETWAIT, &wait));
  ASSERT_NE(wait.mutex, nullptr);
  ASSERT_NE(wait.cond, nullptr);
  fid *fids[] = {pair.b.rx_cq.fid()};
  constexpr int kRounds = 100;
  std::atomic<int> seen{0}, posted{0};
  std::string failure;
  std::thread reader([&] {
    char in[8];
    for (int i = 0; i < kRounds; ++i) {
      if (const ssize_t rc = fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in); rc != 0)
        failure = error_text(rc);
      ++posted;
      timespec deadline;
      clock_gettime(CLOCK_REALTIME, &deadline);
      deadline.tv_sec += 20;
      for (;;) {
        fi_cq_data_entry entry;
        const ssize_t n = fi_cq_read(pair.b.rx_cq, &entry, 1);
        if (n == 1) break;
        if (n != -FI_EAGAIN) failure = error_text(n);
        // The mutex is held from fi_trywait to the wait, so that no signal falls between.
        pthread_mutex_lock(wait.mutex);
        int rc = 0;
        if (fi_trywait(pair.b.fabric, fids, 1) == 0)
          rc = pthread_cond_timedwait(wait.cond, wait.mutex, &deadline);
        pthread_mutex_unlock(wait.mutex);
        if (rc != 0) {
          failure = "asleep after " + std::to_string(i);
          seen = posted = kRounds;
          return;
        }
      }
      ++seen;
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    const Deadline deadline;
    while (posted <= i && !deadline.passed()) std::this_thread::yield();
    if (fi_inject(pair.a.ep, "hello", 6, 0) == -FI_EAGAIN) {
      --i;
      pair.a.progress();
      continue;
    }
    while (seen <= i && !deadline.passed()) pair.a.progress();
  }
  reader.join();
  EXPECT_EQ(failure, "");
}

TEST(CqThreshold, AReaderWaitsForThatManyCompletions) {
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_UNSPEC);
  options.rx_cq.wait_cond = FI_CQ_COND_THRESHOLD;
  Pair pair(options);
  constexpr size_t kCount = 10;
  char in[kCount][8];
  for (auto &buffer : in) must(fi_recv(pair.b.ep, buffer, sizeof buffer, nullptr, 0, buffer));
  for (size_t i = 0; i < kCount; ++i) must(fi_inject(pair.a.ep, "x", 2, 0));
  pair.a.progress();
  fi_cq_data_entry entries[kCount];
  size_t got = 0;
  // The condition is an optimisation. What must hold: no completion is lost, and no wait lasts for
  // ever.
  while (got < kCount) {
    const ssize_t n = fi_cq_sread(pair.b.rx_cq, entries + got, kCount - got,
                                  reinterpret_cast<void *>(kCount - got), 20000);
    ASSERT_GT(n, 0);
    got += size_t(n);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_cq_sread(pair.b.rx_cq, entries, 1, reinterpret_cast<void *>(size_t(3)), 20),
            -FI_EAGAIN);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(15));
}

TEST(CqThreshold, AtTheTimeoutReturnsWhatIsThere) {
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_UNSPEC);
  options.rx_cq.wait_cond = FI_CQ_COND_THRESHOLD;
  Pair pair(options);
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_inject(pair.a.ep, "x", 2, 0));
  pair.a.progress();
  fi_cq_data_entry entries[8];
  EXPECT_EQ(fi_cq_sread(pair.b.rx_cq, entries, 8, reinterpret_cast<void *>(size_t(5)), 200), 1);
}

TEST(CqIdle, ABlockedReaderUsesNoProcessor) {
  // The wait here is what is measured.
  if (!in_fresh_process()) return;
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_FD);
  Pair pair(options);
  fi_cq_data_entry entry;
  constexpr auto kLimit = std::chrono::milliseconds(10);
  const auto wait = [&] {
    EXPECT_EQ(fi_cq_sread(pair.b.rx_cq, &entry, 1, nullptr, 200), -FI_EAGAIN);
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
}

TEST(CqIdle, ABlockedReaderWithStalledInputUsesNoProcessor) {
  NEEDS_WAITING_MESSAGES();
  // Data waits for a receive that is not posted: the descriptor is readable, and yet there is
  // nothing to do.
  if (!in_fresh_process()) return;
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_FD);
  std::vector<uint8_t> out(100000);  // devices read it until the endpoint is closed
  Pair pair(options);
  for (int i = 0; i < 10; ++i)
    must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
  fi_cq_data_entry entry;
  EXPECT_EQ(fi_cq_sread(pair.b.rx_cq, &entry, 1, nullptr, 50), -FI_EAGAIN);
  constexpr auto kLimit = std::chrono::milliseconds(10);
  const auto wait = [&] {
    EXPECT_EQ(fi_cq_sread(pair.b.rx_cq, &entry, 1, nullptr, 200), -FI_EAGAIN);
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
}

TEST(CqWaitRoundTrip, AReceivePostedWhileAThreadBlocksIsNoticed) {
  NEEDS_WAITING_MESSAGES();
  // The data is there already, stalled; the receive comes from another thread.
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_FD);
  Pair pair(options);
  must(fi_inject(pair.a.ep, "hello", 6, 0));
  pair.settle();
  ssize_t rc = 0;
  std::thread reader([&] {
    fi_cq_data_entry entry;
    rc = fi_cq_sread(pair.b.rx_cq, &entry, 1, nullptr, 20000);
  });
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  reader.join();
  EXPECT_EQ(rc, 1);
}

// ---- overrun ----

TEST(CqOverrun, WithResourceManagementNothingIsLost) {
  NEEDS_WAITING_MESSAGES();
  Options options;
  options.resource_mgmt = FI_RM_ENABLED;
  options.rx_cq.size = 4;
  Pair pair(options);
  constexpr int kCount = 200;
  char in[kCount][8];
  for (auto &buffer : in) must(fi_recv(pair.b.ep, buffer, sizeof buffer, nullptr, 0, buffer));
  for (int i = 0; i < kCount; ++i) pair.post([&] { return fi_inject(pair.a.ep, "x", 2, 0); });
  pair.settle();
  for (auto &buffer : in) {
    const Done done = pair.wait(pair.b.rx_cq);
    EXPECT_EQ(done.err, 0);
    EXPECT_EQ(done.context, buffer);
  }
}

TEST(CqOverrun, WithoutResourceManagementAnOverrunIsReported) {
  Options options;
  options.resource_mgmt = FI_RM_DISABLED;
  options.rx_cq.size = 4;
  Pair pair(options);
  if (pair.b.info->domain_attr->resource_mgmt != FI_RM_DISABLED)
    GTEST_SKIP() << "this stack manages resources anyway";
  constexpr int kCount = 100;
  char in[kCount][8];
  for (auto &buffer : in) must(fi_recv(pair.b.ep, buffer, sizeof buffer, nullptr, 0, buffer));
  for (int i = 0; i < kCount; ++i) pair.post([&] { return fi_inject(pair.a.ep, "x", 2, 0); });
  int good = 0;
  bool overrun = false;
  EXPECT_TRUE(pair.until([&] {
    while (auto done = poll_cq(pair.b.rx_cq)) {
      overrun = done->err == FI_EOVERRUN;
      if (overrun) break;
      EXPECT_EQ(done->err, 0);
      ++good;
    }
    return overrun || good == kCount;
  })) << good
      << " completions, and not a word about the others";
}

}  // namespace
}  // namespace weft::conformance
