// SPDX-License-Identifier: BSD-2-Clause
//
// survivor [--prov NAME] [--rounds N] [--lib PREFIX] [--ipv6] [--timeout SECONDS]
//
// Four processes with an FI_EP_RDM endpoint each, at fixed addresses, send checked tagged messages
// to all others without pause. One of the processes is killed meanwhile. The others must get errors
// for that peer and for no other, get every one of their outstanding operations back, go on among
// themselves without losing a message, and reach the peer again when it has started anew at the
// same address. Ends with 0, or with 1 and what was missing.
//
// The first process directs the others over pipes; it waits for what they report, never for time to
// pass.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kPeers = 4;
constexpr int kWindow = 6;               // sends outstanding to each peer
constexpr int kPosted = 12;              // receives posted for each peer
constexpr std::size_t kMax = 96 * 1024;  // past every eager limit
constexpr std::uint64_t kAnySequence = 0xffffffff;

using Counts = std::array<std::uint64_t, kPeers>;

[[noreturn]] void die(const std::string &why) {
  std::fprintf(stderr, "survivor: %s\n", why.c_str());
  std::exit(1);
}

void must(long result, const char *what) {
  if (result < 0) die(std::string(what) + ": " + fi_strerror(static_cast<int>(-result)));
}

std::uint64_t mix(std::uint64_t n) {
  n += 0x9e3779b97f4a7c15;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
  n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
  return n ^ (n >> 31);
}

std::string text(const Counts &counts) {
  std::ostringstream out;
  for (const std::uint64_t count : counts) out << ' ' << count;
  return out.str();
}

/// What every message begins with.
struct Header {
  std::uint64_t from, to, life, sequence, length;
};

/// The length of a message and its bytes follow from its header alone.
std::size_t length_of(const Header &header) {
  const std::uint64_t r =
      mix(header.from * 64 + header.to * 16 + header.life + (header.sequence << 20));
  const std::size_t limit = r % 16 == 0 ? kMax : r % 4 == 0 ? 20000 : 600;
  return sizeof(Header) + (r >> 8) % (limit - sizeof(Header));
}

void fill(char *bytes, const Header &header) {
  std::memcpy(bytes, &header, sizeof(header));
  const std::uint64_t seed =
      mix(header.from ^ header.to << 8 ^ header.life << 16 ^ header.sequence << 24);
  for (std::size_t i = sizeof(header); i < header.length; ++i)
    bytes[i] = static_cast<char>((seed >> (i % 8 * 8)) + i * 31);
}

struct Options {
  std::string provider = "tcp;ofi_rxm";
  std::string library;
  bool ipv6 = false;
  int rounds = 2;
  int timeout = 60;
};

// ---- one of the four ----

class Peer {
 public:
  Peer(const Options &options, int self, int life, const std::vector<int> &ports)
      : options_(options), self_(self), life_(life), ports_(ports) {
    open();
  }
  ~Peer() {
    fi_close(&endpoint_->fid);
    fi_close(&cq_->fid);
    fi_close(&av_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
  }
  Peer(const Peer &) = delete;
  Peer &operator=(const Peer &) = delete;

  /// Obeys the lines on the standard input until "quit".
  void run() {
    say("ready");
    while (!quit_) {
      bool idle = !read_completions();
      if (sending_) idle = !send_more() && idle;
      answer();
      obey(idle);
    }
  }

 private:
  struct Send {
    int peer = 0;
    std::vector<char> bytes = std::vector<char>(kMax);
    bool busy = false;
    fi_context2 context{};
  };
  struct Receive {
    int peer = 0;
    std::uint64_t place = 0;  // among all that were posted for this peer
    std::vector<char> bytes = std::vector<char>(kMax);
    fi_context2 context{};
  };

  void open() {
    fi_info *hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->addr_format = options_.ipv6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    hints->fabric_attr->prov_name = strdup(options_.provider.c_str());
    const std::string service = std::to_string(ports_[self_]);
    must(fi_getinfo(FI_VERSION(1, 17), options_.ipv6 ? "::1" : "127.0.0.1", service.c_str(),
                    FI_SOURCE, hints, &info_),
         "fi_getinfo");
    fi_freeinfo(hints);
    if (info_->domain_attr->mr_mode & FI_MR_LOCAL)
      die("the provider wants FI_MR_LOCAL, which this program does not do");
    must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    must(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    fi_av_attr av{};
    av.type = FI_AV_TABLE;
    must(fi_av_open(domain_, &av, &av_, nullptr), "fi_av_open");
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_TAGGED;
    cq.size = 4096;
    must(fi_cq_open(domain_, &cq, &cq_, nullptr), "fi_cq_open");
    must(fi_endpoint(domain_, info_, &endpoint_, nullptr), "fi_endpoint");
    must(fi_ep_bind(endpoint_, &av_->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(endpoint_, &cq_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(endpoint_), "fi_enable");
    for (int peer = 0; peer < kPeers; ++peer) {
      sockaddr_in6 six{};
      six.sin6_family = AF_INET6;
      six.sin6_port = htons(static_cast<std::uint16_t>(ports_[peer]));
      six.sin6_addr = in6addr_loopback;
      sockaddr_in four{};
      four.sin_family = AF_INET;
      four.sin_port = six.sin6_port;
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const void *address = options_.ipv6 ? static_cast<const void *>(&six) : &four;
      if (fi_av_insert(av_, address, 1, &addresses_[peer], 0, nullptr) != 1)
        die("fi_av_insert failed");
      if (peer == self_) continue;
      for (int i = 0; i < kPosted; ++i) {
        receives_.push_back(std::make_unique<Receive>());
        receives_.back()->peer = peer;
        to_post_.push_back(receives_.back().get());
      }
      for (int i = 0; i < kWindow; ++i) {
        sends_.push_back(std::make_unique<Send>());
        sends_.back()->peer = peer;
      }
    }
    post_receives();
  }

  static std::uint64_t tag(std::uint64_t from, std::uint64_t sequence) {
    return from << 32 | (sequence & kAnySequence);
  }

  void post_receives() {
    while (!to_post_.empty()) {
      Receive &receive = *to_post_.front();
      const ssize_t result =
          fi_trecv(endpoint_, receive.bytes.data(), kMax, nullptr, FI_ADDR_UNSPEC,
                   tag(receive.peer, 0), kAnySequence, &receive.context);
      if (result == -FI_EAGAIN) return;
      must(result, "fi_trecv");
      receive.place = posted_[receive.peer]++;
      to_post_.pop_front();
    }
  }

  bool send_more() {
    bool any = false;
    for (const auto &send : sends_) {
      if (send->busy || down_[send->peer]) continue;
      const auto peer = static_cast<std::uint64_t>(send->peer);
      Header header{static_cast<std::uint64_t>(self_), peer, static_cast<std::uint64_t>(life_),
                    next_[peer], 0};
      header.length = length_of(header);
      fill(send->bytes.data(), header);
      const ssize_t result =
          fi_tsend(endpoint_, send->bytes.data(), header.length, nullptr, addresses_[peer],
                   tag(header.from, header.sequence), &send->context);
      if (result == -FI_EAGAIN) continue;
      any = true;
      if (result != 0) {
        failed(send->peer, static_cast<int>(-result));
        continue;
      }
      ++next_[peer];
      ++outstanding_[peer];
      send->busy = true;
    }
    return any;
  }

  void failed(int peer, int error) {
    ++errors_[peer];
    last_error_[peer] = error;
    down_[peer] = true;
  }

  bool read_completions() {
    fi_cq_tagged_entry entries[16];
    const ssize_t n = fi_cq_read(cq_, entries, 16);
    if (n == -FI_EAGAIN) return false;
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      const ssize_t got = fi_cq_readerr(cq_, &error, 0);
      if (got == -FI_EAGAIN) return false;
      must(got, "fi_cq_readerr");
      if (Send *send = find(sends_, error.op_context)) {
        release(*send);
        failed(send->peer, error.err);
      } else if (Receive *receive = find(receives_, error.op_context)) {
        ++broken_[receive->peer];
        last_error_[receive->peer] = error.err;
        to_post_.push_back(receive);
        post_receives();
      } else {
        die("an error completion with an unknown context");
      }
      return true;
    }
    must(n, "fi_cq_read");
    for (ssize_t i = 0; i < n; ++i) {
      if (Send *send = find(sends_, entries[i].op_context)) {
        release(*send);
        ++sent_[send->peer];
      } else if (Receive *receive = find(receives_, entries[i].op_context)) {
        arrived(*receive, entries[i].len);
      } else {
        die("a completion with an unknown context");
      }
    }
    post_receives();
    return true;
  }

  template <typename Operation>
  static Operation *find(const std::vector<std::unique_ptr<Operation>> &all, const void *context) {
    for (const auto &one : all) {
      if (&one->context == context) return one.get();
    }
    return nullptr;
  }

  void release(Send &send) {
    if (!send.busy) die("a send has completed twice");
    send.busy = false;
    --outstanding_[send.peer];
  }

  void arrived(Receive &receive, std::size_t length) {
    Header header{};
    std::memcpy(&header, receive.bytes.data(), sizeof(header));
    const auto from = static_cast<std::uint64_t>(receive.peer);
    if (header.from != from || header.to != static_cast<std::uint64_t>(self_) ||
        header.length != length || length != length_of(header)) {
      die("a message of " + std::to_string(length) + " bytes from " + std::to_string(from) +
          " says that it is of " + std::to_string(header.length) + " bytes from " +
          std::to_string(header.from) + " to " + std::to_string(header.to));
    }
    expected_.resize(length);
    fill(expected_.data(), header);
    if (std::memcmp(expected_.data(), receive.bytes.data(), length) != 0)
      die("wrong bytes in a message from " + std::to_string(from));
    // Messages match receives in the order in which both were made, whatever completes first:
    // within one life of the sender the distance between the two numbers stays. What went to a
    // process that died, a former peer or our own predecessor, is lost.
    if (header.life != life_of_[from]) {
      if (header.life < life_of_[from]) {
        die("a message of an earlier life of " + std::to_string(from) + " after one of a later");
      }
      life_of_[from] = header.life;
      received_[from] = 0;
      distance_[from] = header.sequence - receive.place;
    }
    if (header.sequence != receive.place + distance_[from]) {
      die("message " + std::to_string(header.sequence) + " from " + std::to_string(from) +
          " came in place of " + std::to_string(receive.place + distance_[from]));
    }
    ++received_[from];
    to_post_.push_back(&receive);
  }

  // The director's lines: go | up P | expect R0 .. R3 E0 .. E3 | pause | status | quit
  void obey(bool idle) {
    pollfd in{0, POLLIN, 0};
    if (poll(&in, 1, idle ? 1 : 0) <= 0) return;
    char bytes[512];
    const ssize_t n = read(0, bytes, sizeof(bytes));
    if (n <= 0) die("the director is gone");
    line_.append(bytes, static_cast<std::size_t>(n));
    for (std::size_t end; (end = line_.find('\n')) != std::string::npos; line_.erase(0, end + 1)) {
      std::istringstream words(line_.substr(0, end));
      std::string verb;
      words >> verb;
      if (verb == "go") {
        sending_ = true;
      } else if (verb == "up") {
        int peer = 0;
        words >> peer;
        down_[peer] = false;
        errors_[peer] = 0;
        broken_[peer] = 0;
        sent_[peer] = 0;
      } else if (verb == "expect") {
        for (std::uint64_t &count : want_received_) words >> count;
        for (std::uint64_t &count : want_errors_) words >> count;
        expecting_ = true;
      } else if (verb == "pause") {
        sending_ = false;
        pausing_ = true;
      } else if (verb == "status") {
        report("status");
      } else if (verb == "quit") {
        quit_ = true;
      }
    }
  }

  void answer() {
    if (pausing_ &&
        std::all_of(outstanding_.begin(), outstanding_.end(), [](auto n) { return n == 0; })) {
      pausing_ = false;
      report("paused");
    }
    if (!expecting_) return;
    for (int peer = 0; peer < kPeers; ++peer) {
      if (received_[peer] < want_received_[peer] || errors_[peer] < want_errors_[peer]) return;
      if (want_errors_[peer] != 0 && outstanding_[peer] != 0) return;  // every operation comes back
    }
    expecting_ = false;
    report("reached");
  }

  void report(const char *what) {
    say(std::string(what) + text(received_) + text(errors_) + text(broken_) + text(sent_) +
        text(outstanding_) + text(last_error_));
  }

  static void say(const std::string &line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  Options options_;
  int self_;
  int life_;
  std::vector<int> ports_;
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_av *av_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_ep *endpoint_ = nullptr;
  std::array<fi_addr_t, kPeers> addresses_{};
  std::vector<std::unique_ptr<Send>> sends_;
  std::vector<std::unique_ptr<Receive>> receives_;
  std::deque<Receive *> to_post_;
  std::vector<char> expected_;
  Counts next_{}, sent_{}, outstanding_{}, errors_{}, broken_{}, last_error_{}, received_{},
      life_of_{}, posted_{}, distance_{};
  Counts want_received_{}, want_errors_{};
  std::array<bool, kPeers> down_{};
  bool sending_ = false, expecting_ = false, pausing_ = false, quit_ = false;
  std::string line_;
};

// ---- the director ----

struct Report {
  Counts received{}, errors{}, broken{}, sent{}, outstanding{}, last_error{};
};

class Director {
 public:
  Director(Options options, const char *program)
      : options_(std::move(options)), program_(program), ports_(free_ports()) {}
  ~Director() {
    for (Child &child : children_) {
      if (child.pid > 0) {
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
      }
    }
  }

  int run() {
    for (int peer = 0; peer < kPeers; ++peer) start(peer);
    for (int peer = 0; peer < kPeers; ++peer) wait_ready(peer);
    for (int peer = 0; peer < kPeers; ++peer) tell(peer, "go");
    for (int round = 0; round < options_.rounds; ++round)
      one_round(round, (kPeers - 1 + round) % kPeers);
    // Nothing is lost between processes that live: all that they were sent has arrived.
    std::array<Report, kPeers> paused;
    for (int peer = 0; peer < kPeers; ++peer) tell(peer, "pause");
    for (int peer = 0; peer < kPeers; ++peer)
      paused[peer] = hear(peer, "paused", "all of its sends to complete");
    for (int peer = 0; peer < kPeers; ++peer) {
      Counts sent{};
      for (int other = 0; other < kPeers; ++other) sent[other] = paused[other].sent[peer];
      expect(peer, but(sent, peer), {});
      const Report report = reached(peer, "all that was sent to it:" + text(sent));
      no_errors(peer, report, -1);
      if (report.received != but(sent, peer))
        die("peer " + std::to_string(peer) + " has received more than was sent");
    }
    for (int peer = 0; peer < kPeers; ++peer) tell(peer, "quit");
    for (Child &child : children_) {
      int status = 0;
      waitpid(child.pid, &status, 0);
      child.pid = 0;
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) die("a process did not end well");
    }
    std::printf("survivor: passed: %s, %d rounds\n", options_.provider.c_str(), options_.rounds);
    return 0;
  }

 private:
  struct Child {
    pid_t pid = 0;
    int to = -1;
    int from = -1;
    int life = 0;
    std::string heard;
  };

  void one_round(int round, int victim) {
    // All send to all.
    Counts some;
    some.fill(100);
    std::array<Report, kPeers> before;
    for (int peer = 0; peer < kPeers; ++peer) expect(peer, but(some, peer), {});
    for (int peer = 0; peer < kPeers; ++peer)
      before[peer] = reached(peer, "100 messages from each peer");

    kill(children_[victim].pid, SIGKILL);
    waitpid(children_[victim].pid, nullptr, 0);
    children_[victim].pid = 0;
    close(children_[victim].to);
    close(children_[victim].from);

    // Errors for that peer, messages from all others.
    for (int peer = 0; peer < kPeers; ++peer) {
      if (peer == victim) continue;
      Counts received = before[peer].received;
      for (std::uint64_t &count : received) count += 100;
      received[victim] = 0;
      Counts errors{};
      errors[victim] = 1;
      expect(peer, but(received, peer), errors);
    }
    int error = 0;
    for (int peer = 0; peer < kPeers; ++peer) {
      if (peer == victim) continue;
      const Report report = reached(peer, "an error for the killed peer " + std::to_string(victim) +
                                              ", and 100 messages from each other");
      no_errors(peer, report, victim);
      error = static_cast<int>(report.last_error[victim]);
    }

    // It comes back at the same address.
    start(victim);
    wait_ready(victim);
    for (int peer = 0; peer < kPeers; ++peer) {
      if (peer != victim) tell(peer, "up " + std::to_string(victim));
    }
    tell(victim, "go");
    for (int peer = 0; peer < kPeers; ++peer) {
      Counts received{};
      received.fill(50);
      for (int other = 0; other < kPeers; ++other) {
        // The process that came back has begun its counts anew, and so have the others for it.
        if (peer != victim && other != victim) received[other] = before[peer].received[other] + 200;
      }
      expect(peer, but(received, peer), {});
    }
    for (int peer = 0; peer < kPeers; ++peer) {
      const Report report = reached(
          peer, "50 messages from each after peer " + std::to_string(victim) + " came back");
      no_errors(peer, report, -1);
    }
    std::printf(
        "survivor: round %d: peer %d killed: the others got '%s' for it alone, and it came back\n",
        round + 1, victim, fi_strerror(error));
    std::fflush(stdout);
  }

  static Counts but(Counts counts, int self) {
    counts[self] = 0;
    return counts;
  }

  /// Only the peer `victim` may have given errors.
  void no_errors(int peer, const Report &report, int victim) {
    for (int other = 0; other < kPeers; ++other) {
      if (other != victim && (report.errors[other] != 0 || report.broken[other] != 0)) {
        die("peer " + std::to_string(peer) + " got " + std::to_string(report.errors[other]) +
            " errors of sends and " + std::to_string(report.broken[other]) +
            " of receives for peer " + std::to_string(other) +
            ", which lives: " + fi_strerror(static_cast<int>(report.last_error[other])));
      }
    }
  }

  std::vector<int> free_ports() {
    std::vector<int> ports;
    std::vector<int> sockets;
    for (int i = 0; i < kPeers; ++i) {
      const int fd = socket(AF_INET6, SOCK_STREAM, 0);
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      socklen_t length = sizeof(address);
      if (fd < 0 || bind(fd, reinterpret_cast<sockaddr *>(&address), length) != 0 ||
          getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) != 0) {
        die(std::string("no free port: ") + std::strerror(errno));
      }
      ports.push_back(ntohs(address.sin6_port));
      sockets.push_back(fd);
    }
    for (const int fd : sockets) close(fd);
    return ports;
  }

  void start(int peer) {
    Child &child = children_[peer];
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
      die(std::string("pipe: ") + std::strerror(errno));
    std::vector<std::string> words = {program_,
                                      "--prov",
                                      options_.provider,
                                      "--child",
                                      std::to_string(peer),
                                      std::to_string(++child.life)};
    for (const int port : ports_) words.push_back(std::to_string(port));
    if (options_.ipv6) words.push_back("--ipv6");
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    child.pid = fork();
    if (child.pid < 0) die(std::string("fork: ") + std::strerror(errno));
    if (child.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(to[0], 0);
      dup2(from[1], 1);
      execv("/proc/self/exe", arguments.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    child.to = to[1];
    child.from = from[0];
    child.heard.clear();
  }

  void tell(int peer, const std::string &line) {
    const std::string whole = line + "\n";
    if (write(children_[peer].to, whole.data(), whole.size()) !=
        static_cast<ssize_t>(whole.size())) {
      die("peer " + std::to_string(peer) + " has ended by itself");
    }
  }

  void expect(int peer, const Counts &received, const Counts &errors) {
    tell(peer, "expect" + text(received) + text(errors));
  }
  Report reached(int peer, const std::string &what) { return hear(peer, "reached", what); }

  std::string read_line(int peer, const std::string &what) {
    Child &child = children_[peer];
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options_.timeout);
    std::size_t end = 0;
    while ((end = child.heard.find('\n')) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd in{child.from, POLLIN, 0};
      if (left.count() <= 0 || poll(&in, 1, static_cast<int>(left.count())) == 0)
        give_up(peer, what);
      char bytes[512];
      const ssize_t n = read(child.from, bytes, sizeof(bytes));
      if (n <= 0) die("peer " + std::to_string(peer) + " has ended by itself, before " + what);
      child.heard.append(bytes, static_cast<std::size_t>(n));
    }
    const std::string line = child.heard.substr(0, end);
    child.heard.erase(0, end + 1);
    return line;
  }

  [[noreturn]] void give_up(int peer, const std::string &what) {
    std::fprintf(stderr, "survivor: peer %d has waited %d s for %s\n", peer, options_.timeout,
                 what.c_str());
    options_.timeout = 5;
    if (!giving_up_) {
      giving_up_ = true;
      for (int other = 0; other < kPeers; ++other) {
        if (children_[other].pid == 0) continue;
        tell(other, "status");
        std::string line;
        while (line.rfind("status", 0) != 0) line = read_line(other, "its status");
        std::fprintf(stderr,
                     "survivor: peer %d: received, errors, broken receives, sent, outstanding, "
                     "last errno:%s\n",
                     other, line.substr(6).c_str());
      }
    }
    // exit() runs no destructor of ours: end the others here.
    for (const Child &child : children_) {
      if (child.pid > 0) kill(child.pid, SIGKILL);
    }
    std::exit(1);
  }

  Report hear(int peer, const char *verb, const std::string &what) {
    std::istringstream words(read_line(peer, what));
    std::string got;
    words >> got;
    Report report;
    for (Counts *counts : {&report.received, &report.errors, &report.broken, &report.sent,
                           &report.outstanding, &report.last_error}) {
      for (std::uint64_t &count : *counts) words >> count;
    }
    if (got != verb || !words)
      die("peer " + std::to_string(peer) + " answers '" + got + "' in place of '" + verb + "'");
    return report;
  }

  void wait_ready(int peer) {
    if (read_line(peer, "its endpoint") != "ready")
      die("peer " + std::to_string(peer) + " did not start");
    if (options_.library.empty()) return;
    std::ifstream maps("/proc/" + std::to_string(children_[peer].pid) + "/maps");
    std::string found = "none";
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/libfabric.so") != std::string::npos) found = line.substr(line.find('/'));
    }
    if (found.rfind(options_.library, 0) != 0)
      die("runs on " + found + ", not on " + options_.library);
  }

  Options options_;
  std::string program_;
  std::vector<int> ports_;
  std::array<Child, kPeers> children_;
  bool giving_up_ = false;
};

}  // namespace

int main(int argc, char **argv) {
  Options options;
  int self = -1;
  int life = 0;
  std::vector<int> ports;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) die(option + " wants a value");
      return std::string(argv[++i]);
    };
    if (option == "--prov") {
      options.provider = value();
    } else if (option == "--rounds") {
      options.rounds = std::stoi(value());
    } else if (option == "--timeout") {
      options.timeout = std::stoi(value());
    } else if (option == "--lib") {
      options.library = value();
    } else if (option == "--ipv6") {
      options.ipv6 = true;
    } else if (option == "--child") {
      self = std::stoi(value());
      life = std::stoi(value());
      for (int peer = 0; peer < kPeers; ++peer) ports.push_back(std::stoi(value()));
    } else {
      die("unknown option '" + option + "'; there are --prov, --rounds, --lib, --ipv6, --timeout");
    }
  }
  signal(SIGPIPE, SIG_IGN);
  if (self >= 0) {
    Peer(options, self, life, ports).run();
    return 0;
  }
  return Director(options, argv[0]).run();
}
