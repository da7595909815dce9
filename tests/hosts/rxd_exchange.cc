// SPDX-License-Identifier: BSD-2-Clause
// One half of an exchange between two hosts: some endpoints here, as many there, each of which
// sends messages of many sizes to all of the others' and reads and writes a region of theirs. Every
// byte is checked. Nothing is agreed but ports, so either half may start first.
//
//   rxd_exchange --node 10.0.0.1 --peer 10.0.0.2 --endpoints 8 --messages 20
//
// Exits 0 when all arrived exactly once; otherwise prints what did not. With --hold it makes
// progress until its input ends, so that rxd_flood can attack it meanwhile.
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kSizes[] = {0, 1, 64, 1000, 1472, 4096, 20000, 65536, 300000};
constexpr uint64_t kKey = 7;
constexpr uint64_t kGreeting = 1ull << 63;  // the tag of a greeting
constexpr size_t kRegion = 40000;

struct Settings {
  std::string provider = "udp;ofi_rxd", node, peer;
  int endpoints = 1, messages = 20, port = 20000, seconds = 60;
  bool hold = false;
};

[[noreturn]] void die(const char *what, long rc) {
  std::fprintf(stderr, "%s: %s\n", what, fi_strerror(int(rc < 0 ? -rc : rc)));
  std::exit(1);
}
void must(const char *what, long rc) {
  if (rc < 0) die(what, rc);
}

// Byte i of message `number` from endpoint `from` of the host at `port` to endpoint `to`.
uint8_t pattern(size_t from, size_t to, size_t number, size_t i) {
  return uint8_t(from * 131 + to * 17 + number * 29 + i * 7 + (i >> 8) * 3);
}

struct Message {
  std::vector<uint8_t> bytes;
  size_t peer = 0, number = 0;
  bool done = false;
};

struct Half {
  fid_ep *ep = nullptr;
  fid_cq *cq = nullptr;
  fid_av *av = nullptr;
  fid_mr *mr = nullptr;
  std::vector<fi_addr_t> peers;
  std::vector<std::unique_ptr<Message>> sends, receives, writes, reads;
  size_t met = 0;       // peers that have got our greeting
  size_t finished = 0;  // peers that have got everything from us
  size_t told = 0;      // peers that we told that we have got everything
  size_t known = 0;     // those that know it, or are gone
  std::vector<uint8_t> region;
  size_t at[4] = {};  // posted of each
  char word[8] = {};
};

class Exchange {
 public:
  explicit Exchange(const Settings &settings) : s_(settings) {
    hints_ = fi_allocinfo();
    hints_->ep_attr->type = FI_EP_RDM;
    hints_->caps = FI_MSG | FI_TAGGED | FI_RMA;
    hints_->fabric_attr->prov_name = strdup(s_.provider.c_str());
    hints_->domain_attr->mr_mode = 0;
    for (int i = 0; i < s_.endpoints; ++i) open(size_t(i));
    for (Half &h : halves_) {
      post_last(h);
      for (const fi_addr_t &peer : h.peers) {
        must("fi_trecv", fi_trecv(h.ep, nullptr, 0, nullptr, peer, kGreeting, 0, &h.met));
        greet(h, peer);
      }
    }
  }
  ~Exchange() {
    for (Half &h : halves_) {
      fi_close(&h.ep->fid);
      fi_close(&h.mr->fid);
      fi_close(&h.av->fid);
      fi_close(&h.cq->fid);
    }
    if (domain_ != nullptr) fi_close(&domain_->fid);
    if (fabric_ != nullptr) fi_close(&fabric_->fid);
    fi_freeinfo(hints_);
  }
  Exchange(const Exchange &) = delete;

  // 0: all arrived and is right.
  int run() {
    while (wrong_ == 0 && done_ < expected_) {
      for (Half &h : halves_) {
        if (h.met == count()) post(h);
        take(h);
      }
      if (late()) return 1;
    }
    const double took = std::chrono::duration<double>(Clock::now() - begin_).count();
    while (s_.hold && wrong_ == 0 && !input_ended()) {
      for (Half &h : halves_) take(h);
      if (late()) return 1;
    }
    // If this half ended now, the other half would get no answers.
    for (bool waits = true; waits && wrong_ == 0;) {
      waits = false;
      for (Half &h : halves_) {
        if (h.told < count()) {
          const ssize_t rc = tell(h, h.peers[h.told]);
          if (rc == 0) ++h.told;
          if (rc != -FI_EAGAIN) must("fi_send", rc);
        }
        take(h);
        waits = waits || h.known < count() || h.finished < count();
      }
      if (late()) return 1;
    }
    for (size_t i = 0; i < halves_.size(); ++i) check_region(i);
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    std::printf("%zu operations in %.2f s, %zu wrong; %ld KiB of memory at most\n", done_, took,
                wrong_, used.ru_maxrss);
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  size_t count() const { return size_t(s_.endpoints); }
  // The input has no bytes, only an end.
  static bool input_ended() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
  }
  bool late() const {
    if (Clock::now() < end_) return false;
    size_t finished = 0;
    for (const Half &h : halves_) finished += h.finished;
    std::fprintf(stderr, "after %d s: %zu of %zu operations, %zu of %zu peers are finished\n",
                 s_.seconds, done_, expected_, finished, count() * count());
    return true;
  }
  size_t piece() const { return kRegion / count(); }

  void open(size_t i) {
    const std::string port = std::to_string(s_.port + int(i));
    fi_info *info = nullptr;
    must("fi_getinfo",
         fi_getinfo(FI_VERSION(1, 17), s_.node.c_str(), port.c_str(), FI_SOURCE, hints_, &info));
    if (fabric_ == nullptr) {
      must("fi_fabric", fi_fabric(info->fabric_attr, &fabric_, nullptr));
      must("fi_domain", fi_domain(fabric_, info, &domain_, nullptr));
    }
    Half &h = halves_.emplace_back();
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_TAGGED;
    must("fi_cq_open", fi_cq_open(domain_, &cq, &h.cq, nullptr));
    fi_av_attr av{};
    av.type = FI_AV_TABLE;
    must("fi_av_open", fi_av_open(domain_, &av, &h.av, nullptr));
    must("fi_endpoint", fi_endpoint(domain_, info, &h.ep, nullptr));
    must("fi_ep_bind", fi_ep_bind(h.ep, &h.av->fid, 0));
    must("fi_ep_bind", fi_ep_bind(h.ep, &h.cq->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(h.ep));
    fi_freeinfo(info);
    h.region.assign(kRegion, 0);
    must("fi_mr_reg", fi_mr_reg(domain_, h.region.data(), kRegion, FI_REMOTE_READ | FI_REMOTE_WRITE,
                                0, kKey + i, 0, &h.mr, nullptr));
    for (size_t peer = 0; peer < count(); ++peer) {
      fi_addr_t address;
      const std::string there = std::to_string(s_.port + int(peer));
      const int n = fi_av_insertsvc(h.av, s_.peer.c_str(), there.c_str(), &address, 0, nullptr);
      if (n != 1) die("fi_av_insertsvc", n);
      h.peers.push_back(address);
      for (size_t m = 0; m < size_t(s_.messages); ++m) {
        const size_t size = kSizes[(m + i + peer) % std::size(kSizes)];
        for (auto *list : {&h.sends, &h.receives}) {
          auto message = std::make_unique<Message>();
          message->bytes.resize(size);
          message->peer = peer;
          message->number = m;
          if (list == &h.sends)
            for (size_t b = 0; b < size; ++b) message->bytes[b] = pattern(i, peer, m, b);
          list->push_back(std::move(message));
        }
      }
      for (auto *list : {&h.writes, &h.reads}) {
        auto message = std::make_unique<Message>();
        message->bytes.resize(piece());
        message->peer = peer;
        if (list == &h.writes)
          for (size_t b = 0; b < piece(); ++b) message->bytes[b] = pattern(i, peer, 999, b);
        list->push_back(std::move(message));
      }
    }
    expected_ += h.sends.size() + h.receives.size() + h.writes.size() + h.reads.size();
  }

  uint64_t tag_of(size_t from, size_t to, size_t number) const {
    return uint64_t(from) << 40 | uint64_t(to) << 20 | number;
  }

  // The network says at once that nobody receives at the port of a peer that has not started. So
  // the exchange begins when all peers have got a greeting; one that was refused goes again.
  static void greet(Half &h, const fi_addr_t &peer) {
    const iovec nothing{};
    fi_msg_tagged message{};
    message.msg_iov = &nothing;
    message.iov_count = 1;
    message.addr = peer;
    message.tag = kGreeting;
    message.context = const_cast<fi_addr_t *>(&peer);
    must("fi_tsendmsg", fi_tsendmsg(h.ep, &message, FI_COMPLETION | FI_TRANSMIT_COMPLETE));
  }
  // The peer whose greeting has this context; null: it is of something else.
  static const fi_addr_t *greeted(const Half &h, const void *context) {
    for (const fi_addr_t &peer : h.peers)
      if (&peer == context) return &peer;
    return nullptr;
  }

  // Completes when the peer has it.
  static ssize_t tell(Half &h, fi_addr_t peer) {
    static char word[] = "finished";
    const iovec iov{word, 8};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = peer;
    message.context = &h.told;
    return fi_sendmsg(h.ep, &message, FI_COMPLETION | FI_TRANSMIT_COMPLETE);
  }

  // For the message that a peer has finished: the vector of halves does not grow any more.
  void post_last(Half &h) {
    for (size_t peer = 0; peer < count(); ++peer)
      must("fi_recv", fi_recv(h.ep, h.word, sizeof h.word, nullptr, FI_ADDR_UNSPEC, &h));
  }

  // Posts what is left, as far as the endpoint takes it. A read follows the write to its place.
  void post(Half &h) {
    const auto i = size_t(&h - halves_.data());
    std::vector<std::unique_ptr<Message>> *lists[] = {&h.receives, &h.sends, &h.writes, &h.reads};
    for (size_t kind = 0; kind < 4; ++kind) {
      for (size_t &at = h.at[kind]; at < lists[kind]->size(); ++at) {
        Message &m = *(*lists[kind])[at];
        const fi_addr_t to = h.peers[m.peer];
        ssize_t rc = 0;
        if (kind == 0) {
          rc = fi_trecv(h.ep, m.bytes.data(), m.bytes.size(), nullptr, to,
                        tag_of(m.peer, i, m.number), 0, &m);
        } else if (kind == 1) {
          rc = fi_tsend(h.ep, m.bytes.data(), m.bytes.size(), nullptr, to,
                        tag_of(i, m.peer, m.number), &m);
        } else if (kind == 2) {
          rc = fi_write(h.ep, m.bytes.data(), m.bytes.size(), nullptr, to, i * piece(),
                        kKey + m.peer, &m);
        } else if (h.writes[at]->done) {
          rc = fi_read(h.ep, m.bytes.data(), m.bytes.size(), nullptr, to, i * piece(),
                       kKey + m.peer, &m);
        } else {
          break;
        }
        if (rc == -FI_EAGAIN) break;
        must("an operation", rc);
      }
    }
  }

  void take(Half &h) {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(h.cq, &entry, 1);
    if (n == -FI_EAGAIN) return;
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(h.cq, &error, 0);
      if (error.op_context == &h.told) {
        ++h.known;
        return;
      }
      const fi_addr_t *peer = greeted(h, error.op_context);
      if (peer == nullptr || error.err != FI_ECONNREFUSED) die("an operation failed", error.err);
      greet(h, *peer);
      return;
    }
    must("fi_cq_read", n);
    if (entry.op_context == &h || entry.op_context == &h.told) {
      ++(entry.op_context == &h ? h.finished : h.known);
      return;
    }
    if (entry.op_context == &h.met) return;
    if (greeted(h, entry.op_context) != nullptr) {
      ++h.met;
      return;
    }
    auto &m = *static_cast<Message *>(entry.op_context);
    if (m.done) {
      std::fprintf(stderr, "an operation completed twice\n");
      ++wrong_;
    }
    m.done = true;
    ++done_;
    const auto i = size_t(&h - halves_.data());
    if (entry.flags & FI_RECV) {
      if (entry.len != m.bytes.size()) {
        std::fprintf(stderr, "%zu bytes in place of %zu\n", entry.len, m.bytes.size());
        ++wrong_;
      }
      check(m, m.peer, i, m.number);
    } else if (entry.flags & FI_READ) {
      check(m, i, m.peer, 999);
    }
  }

  void check(const Message &m, size_t from, size_t to, size_t number) {
    for (size_t b = 0; b < m.bytes.size(); ++b) {
      if (m.bytes[b] == pattern(from, to, number, b)) continue;
      std::fprintf(stderr, "byte %zu of %zu of message %zu from %zu to %zu is wrong\n", b,
                   m.bytes.size(), number, from, to);
      ++wrong_;
      return;
    }
  }

  // The place of a complete write has its bytes; the place of a peer that is not there yet is 0.
  void check_region(size_t i) {
    for (size_t from = 0; from < count(); ++from) {
      const uint8_t *bytes = halves_[i].region.data() + from * piece();
      for (size_t b = 0; b < piece(); ++b) {
        if (bytes[b] == pattern(from, i, 999, b) || bytes[b] == 0) continue;
        std::fprintf(stderr, "byte %zu of the region of %zu, written by %zu, is wrong\n", b, i,
                     from);
        ++wrong_;
        return;
      }
    }
  }

  const Settings s_;
  fi_info *hints_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  std::vector<Half> halves_;
  const Clock::time_point begin_ = Clock::now(), end_ = begin_ + std::chrono::seconds(s_.seconds);
  size_t expected_ = 0, done_ = 0, wrong_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
  Settings settings;
  CLI::App app("one half of an exchange between two hosts, every byte checked");
  app.add_option("--provider", settings.provider, "as FI_PROVIDER has it");
  app.add_option("--node", settings.node, "own address")->required();
  app.add_option("--peer", settings.peer, "address of the other host")->required();
  app.add_option("--endpoints", settings.endpoints, "on each side")->check(CLI::Range(1, 1000));
  app.add_option("--messages", settings.messages, "per pair of endpoints and direction");
  app.add_option("--port", settings.port, "of the first endpoint");
  app.add_option("--seconds", settings.seconds, "after which it fails");
  app.add_flag("--hold", settings.hold, "stay until the input ends");
  CLI11_PARSE(app, argc, argv);
  return Exchange(settings).run();
}
