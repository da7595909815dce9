// SPDX-License-Identifier: BSD-2-Clause
// The messages of the test, and the loop that is timed. All functions that the loop calls are in
// this file, so that the compiler can inline them.
#include <absl/strings/escaping.h>
#include <rdma/fi_tagged.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "tools/fi_pingpong/ping_pong.h"

namespace weft::pingpong {
namespace {

constexpr uint64_t kTag = 1234;  // fi_pingpong of every implementation uses it

// The bytes of a verified message: this alphabet over and over. Each message starts 7 letters after
// the start of the one before, on both sides, so that a stale or repeated message is found too.
constexpr std::string_view kAlphabet =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr size_t kAlphabetStep = 7;

}  // namespace

void PingPong::run() {
  options_.is_server() ? meet_client() : meet_server();
  control_.on_wait([this] {
    read_cq(tx_cq_.get(), &sends_done_);
    read_cq(rx_cq_.get(), &receives_done_);
    if (counting_ && options_.is_server() && receives_done_ == receives_posted_) {
      fail(EPROTO,
           "the client sends more than the %d messages of this test; "
           "both sides need the same -I",
           options_.iterations);
    }
  });
  for (const uint64_t size : sizes_) {
    run_size(size);
  }
  finish();
}

void PingPong::post_receive() {
  while (true) {
    const ssize_t ret = options_.tagged ? fi_trecv(ep_.get(), rx_buffer_, buffer_length_, mr_desc_,
                                                   FI_ADDR_UNSPEC, kTag, 0, &rx_context_)
                                        : fi_recv(ep_.get(), rx_buffer_, buffer_length_, mr_desc_,
                                                  FI_ADDR_UNSPEC, &rx_context_);
    if (ret != -FI_EAGAIN) {
      check(ret, "posting a receive");
      ++receives_posted_;
      return;
    }
    progress("room to post a receive", false);
  }
}

void PingPong::send_message(uint64_t size) {
  if (options_.verify) {
    fill(size);
  }
  const size_t length = prefix_ + size;
  const bool inject = size <= inject_limit_;
  while (true) {
    ssize_t ret;
    if (inject) {
      ret = options_.tagged ? fi_tinject(ep_.get(), tx_buffer_, length, peer_, kTag)
                            : fi_inject(ep_.get(), tx_buffer_, length, peer_);
    } else {
      ret = options_.tagged
                ? fi_tsend(ep_.get(), tx_buffer_, length, mr_desc_, peer_, kTag, &tx_context_)
                : fi_send(ep_.get(), tx_buffer_, length, mr_desc_, peer_, &tx_context_);
    }
    if (ret != -FI_EAGAIN) {
      check(ret, "sending a message");
      break;
    }
    progress("room to send a message", false);
  }
  if (!inject) {
    ++sends_posted_;
    while (sends_done_ < sends_posted_) {
      if (!read_cq(tx_cq_.get(), &sends_done_)) {
        idle("the completion of a send", false);
      }
    }
  }
  idle_spins_ = 0;
}

void PingPong::receive_message(uint64_t size) {
  while (receives_done_ < receives_posted_) {
    if (!read_cq(rx_cq_.get(), &receives_done_)) {
      idle("a message", true);
    }
  }
  idle_spins_ = 0;
  // With a prefix the length is not checked: the provider may count the prefix or not.
  if (prefix_ == 0 && received_length_ != size) {
    fail(EPROTO,
         "a message of %d bytes arrived in a test of %d bytes; both "
         "sides need the same -S",
         received_length_, size);
  }
  if (options_.verify) {
    verify(size);
  }
  post_receive();
}

// A message repeats after one alphabet. So its bytes are copied and compared in blocks, which is
// much faster than one by one, above all under sanitizers.
void PingPong::fill(uint64_t size) {
  char *at = tx_buffer_ + prefix_;
  const uint64_t first = std::min<uint64_t>(size, kAlphabet.size());
  for (uint64_t i = 0; i < first; ++i) {
    at[i] = kAlphabet[(tx_letter_ + i) % kAlphabet.size()];
  }
  for (uint64_t done = first; done < size;) {
    const uint64_t more = std::min(done, size - done);
    memcpy(at + done, at, more);
    done += more;
  }
  tx_letter_ = (tx_letter_ + kAlphabetStep) % kAlphabet.size();
}

void PingPong::verify(uint64_t size) {
  const char *at = rx_buffer_ + prefix_;
  const auto expected = [&](uint64_t i) { return kAlphabet[(rx_letter_ + i) % kAlphabet.size()]; };
  const uint64_t first = std::min<uint64_t>(size, kAlphabet.size());
  uint64_t good = 0;
  while (good < first && at[good] == expected(good)) {
    ++good;
  }
  if (good < first || memcmp(at, at + first, size - first) != 0) {
    while (good + 1 < size && at[good] == expected(good)) {
      ++good;
    }
    fail(EIO,
         "data integrity: byte %d of a message of %d bytes is '%s' "
         "instead of '%c'; if the peer runs without -c, its data mean "
         "nothing",
         good, size, absl::CHexEscape(absl::string_view(at + good, 1)), expected(good));
  }
  rx_letter_ = (rx_letter_ + kAlphabetStep) % kAlphabet.size();
}

bool PingPong::read_cq(fid_cq *cq, uint64_t *done) {
  fi_cq_msg_entry entry;
  const ssize_t ret = fi_cq_read(cq, &entry, 1);
  if (ret == 1) {
    ++*done;
    if (cq == rx_cq_.get()) {
      received_length_ = entry.len;
    }
    return true;
  }
  if (ret == -FI_EAGAIN) {
    return false;
  }
  throw_cq_error(cq, ret);
}

void PingPong::throw_cq_error(fid_cq *cq, ssize_t ret) {
  if (ret != -FI_EAVAIL) {
    check(ret, "fi_cq_read");
  }
  fi_cq_err_entry error = {};
  check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
  const char *detail = fi_cq_strerror(cq, error.prov_errno, error.err_data, nullptr, 0);
  fail(error.err, "%s failed: %s (provider: %s)%s", cq == rx_cq_.get() ? "a receive" : "a send",
       fi_strerror(error.err), detail != nullptr ? detail : "",
       control_.peek().closed ? "; the peer has gone" : "");
}

void PingPong::progress(const char *what, bool receiving) {
  const bool sent = read_cq(tx_cq_.get(), &sends_done_);
  const bool received = read_cq(rx_cq_.get(), &receives_done_);
  if (!sent && !received) {
    idle(what, receiving);
  }
}

// Called after each poll that found nothing. Once in many polls it looks at the clock and at the
// control connection, which costs system calls: there it sees that the peer died or runs another
// test.
void PingPong::idle(const char *what, bool receiving) {
  constexpr uint64_t kSpins = 1024;
  if (++idle_spins_ % kSpins != 0) {
    return;
  }
  sched_yield();
  const Clock::time_point now = Clock::now();
  if (idle_spins_ == kSpins) {
    idle_since_ = now;
  }
  const Control::State peer = control_.peek();
  if (peer.closed) {
    fail(ECONNABORTED, "the peer went away while this side waited for %s", what);
  }
  // The next control message comes only after the last data message has been answered.
  if (peer.pending && receiving) {
    fail(EPROTO,
         "the peer has ended its test while this side waits for %s; both "
         "sides need the same -I",
         what);
  }
  if (now - idle_since_ >= options_.timeout) {
    fail(ETIMEDOUT, "waited %d s for %s%s", options_.timeout.count(), what,
         options_.type == FI_EP_DGRAM
             ? "; datagrams may get lost, and this test does not repeat them"
             : "; are -e, -I, -S and -p the same on both sides?");
  }
}

void PingPong::run_size(uint64_t size) {
  control_.sync();
  uint64_t answers = 0;
  idle_spins_ = 0;
  const Clock::time_point start = Clock::now();
  if (options_.is_server()) {
    for (uint64_t i = 0; i < options_.iterations; ++i) {
      receive_message(size);
      send_message(size);
    }
  } else {
    for (; answers < options_.iterations; ++answers) {
      send_message(size);
      receive_message(size);
    }
  }
  const Clock::duration elapsed = Clock::now() - start;
  counting_ = true;
  answers = control_.exchange_count(answers);
  counting_ = false;
  report_.add(size, options_.iterations, answers,
              std::chrono::duration<double, std::micro>(elapsed).count());
}

ssize_t PingPong::send_last_message() {
  const iovec iov = {tx_buffer_, prefix_ + sizeof(kFin)};
  if (options_.tagged) {
    fi_msg_tagged message = {};
    message.msg_iov = &iov;
    message.desc = &mr_desc_;
    message.iov_count = 1;
    message.addr = peer_;
    message.tag = kTag;
    message.context = &tx_context_;
    return fi_tsendmsg(ep_.get(), &message, FI_TRANSMIT_COMPLETE);
  }
  fi_msg message = {};
  message.msg_iov = &iov;
  message.desc = &mr_desc_;
  message.iov_count = 1;
  message.addr = peer_;
  message.context = &tx_context_;
  return fi_sendmsg(ep_.get(), &message, FI_TRANSMIT_COMPLETE);
}

// "fin" to the peer, transmit-complete, and the peer's "fin".
void PingPong::say_goodbye() {
  std::memcpy(tx_buffer_ + prefix_, kFin, sizeof(kFin));
  const Deadline deadline(std::min<Clock::duration>(options_.timeout, std::chrono::seconds(5)));
  while (true) {
    const ssize_t ret = send_last_message();
    if (ret != -FI_EAGAIN) {
      check(ret, "sending the last message");
      ++sends_posted_;
      break;
    }
    read_cq(tx_cq_.get(), &sends_done_);
    read_cq(rx_cq_.get(), &receives_done_);
    if (deadline.passed()) {
      fail(ETIMEDOUT, "no room to send the last message");
    }
  }
  while (sends_done_ < sends_posted_ || receives_done_ < receives_posted_) {
    const bool sent = read_cq(tx_cq_.get(), &sends_done_);
    const bool received = read_cq(rx_cq_.get(), &receives_done_);
    if (!sent && !received && deadline.passed()) {
      fail(ETIMEDOUT, "the peer's last message did not come");
    }
  }
}

// Neither side closes its endpoint while the other still needs it. The results are printed by now:
// an error here, a lost datagram for instance, is shown with -v only.
void PingPong::finish() {
  try {
    say_goodbye();
  } catch (const Failure &failure) {
    debug("at the end: %s", failure.what());
  }
  if (options_.type == FI_EP_MSG) {
    fi_shutdown(ep_.get(), 0);
  }
}

}  // namespace weft::pingpong
