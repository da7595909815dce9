// SPDX-License-Identifier: BSD-2-Clause
// Which calls of cxi make no system call, when two processes of a host talk.
#include <rdma/fi_cxi_ext.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

namespace weft::conformance::rdm {
namespace {

constexpr size_t kMessages = 8;
constexpr uint64_t kTag = 3;

// The system calls of this thread, which the kernel gives to a handler while the selector says so.
class SystemCalls {
 public:
  static constexpr long kNone = -1;

  // False: this kernel cannot tell.
  static bool can_tell() {
#if defined(__x86_64__)
    struct sigaction action = {};
    action.sa_sigaction = on_call;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSYS, &action, nullptr) == 0 &&
           prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector_) == 0;
#else
    return false;
#endif
  }
  // The number of the first that `run` makes. Those behind it are not seen.
  template <class F>
  static long first_of(F run) {
    first_ = kNone;
    selector_ = kBlocked;
    run();
    selector_ = kAllowed;
    return first_;
  }

 private:
  static constexpr char kAllowed = 0, kBlocked = 1;
  // The call is made from here.
  static void on_call(int, siginfo_t *info, void *context) {
    selector_ = kAllowed;  // also for the return from here
    first_ = info->si_syscall;
#if defined(__x86_64__)
    auto *const regs = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    const long result = ::syscall(info->si_syscall, regs[REG_RDI], regs[REG_RSI], regs[REG_RDX],
                                  regs[REG_R10], regs[REG_R8], regs[REG_R9]);
    regs[REG_RAX] = result == -1 ? -errno : result;
#else
    (void)context;
#endif
  }
  static inline volatile char selector_ = kAllowed;
  static inline volatile long first_ = kNone;
};

// Sends `kMessages` whenever it is asked to, and takes what comes.
void run_peer(int socket) {
  Node node{Options()};
  tell_text(socket, node.name());
  const fi_addr_t to = node.insert(hear_text(socket));
  std::vector<uint8_t> out = pattern(kMessages, 1), in(64);
  tell(socket, 1);
  while (hear(socket) == 1) {
    for (size_t i = 0; i < kMessages; ++i) {
      must(fi_trecv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr));
      must(fi_tsend(node.ep, &out[i], 1, nullptr, to, kTag, nullptr));
    }
    const Deadline deadline;
    for (size_t done = 0; done != 2 * kMessages && !deadline.passed();) {
      done += poll(node.tx_cq).has_value() ? 1 : 0;
      done += poll(node.rx_cq).has_value() ? 1 : 0;
    }
    tell(socket, 2);
  }
}

void send(Node &node, fi_addr_t to, const uint8_t &byte, uint64_t flags) {
  const iovec iov{const_cast<uint8_t *>(&byte), 1};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = to;
  message.tag = kTag;
  must(fi_tsendmsg(node.ep, &message, FI_COMPLETION | flags));
}

TEST(CxiCalls, TheseNeedNoSystemCall) {
  // The thread of the NIC would take the lock now and then, and who finds it taken may sleep.
  if (!in_fresh_process({"FI_CXI_SOFT_THREAD=0"})) return;
  Child child(run_peer);
  Options options;
  options.threading = FI_THREAD_DOMAIN;
  Net net(1, options);
  Node &node = net[0];
  const fi_addr_t to = node.insert(hear_text(child.socket()));
  tell_text(child.socket(), node.name());
  EXPECT_EQ(hear(child.socket()), 1u);
  if (!SystemCalls::can_tell()) GTEST_SKIP() << "the kernel does not tell of system calls";
  EXPECT_EQ(SystemCalls::first_of([] { (void)getppid(); }), SYS_getppid);

  std::vector<uint8_t> in(kMessages), out = pattern(kMessages, 1);
  std::vector<fi_cq_tagged_entry> entries(2 * kMessages);
  for (int round = 0; round < 3; ++round) {  // the first one warms up
    const long of_receives = SystemCalls::first_of([&] {
      for (uint8_t &byte : in)
        must(fi_trecv(node.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr));
    });
    const long of_sends = SystemCalls::first_of([&] {
      for (size_t i = 0; i + 1 < kMessages; ++i) send(node, to, out[i], FI_MORE);
    });
    send(node, to, out.back(), 0);  // they leave with this one
    tell(child.socket(), 1);
    const Deadline deadline;
    while (!can_hear(child.socket()) && !deadline.passed()) node.progress();
    EXPECT_EQ(hear(child.socket()), 2u);
    for (int i = 0; i < 100; ++i) node.progress();
    size_t read = 0;
    const long of_reads = SystemCalls::first_of([&] {
      for (size_t i = 0; i < kMessages; ++i)
        read += fi_cq_read(node.rx_cq, &entries[i], 1) == 1 ? 1 : 0;
    });
    while (poll(node.tx_cq)) {
    }
    EXPECT_EQ(read, kMessages);
    EXPECT_EQ(in, out);
    if (round == 0) continue;
    EXPECT_EQ(of_receives, SystemCalls::kNone) << "fi_trecv";
    EXPECT_EQ(of_sends, SystemCalls::kNone) << "fi_tsendmsg with FI_MORE";
    EXPECT_EQ(of_reads, SystemCalls::kNone) << "fi_cq_read of what is there";
  }
  tell(child.socket(), 0);
  child.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
