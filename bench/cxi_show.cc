// SPDX-License-Identifier: BSD-2-Clause
// weft-cxi-show: what cxi does on the NICs in software, shown by four processes on cxi0 and cxi1: a
// write that the NIC of one starts when three messages have come, and reductions over all four.
// The last lines are the provider's counters, and whether all was as it should be: the exit status.
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/plugin.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kRanks = 4;
constexpr unsigned kSeconds = 60;  // for all
constexpr uint64_t kKey = 200, kWritten = 42;
constexpr uint32_t kApi = FI_VERSION(2, 0);

[[noreturn]] void give_up(const char *what, int64_t rc) {
  throw std::runtime_error(std::string(what) + ": " + fi_strerror(int(rc < 0 ? -rc : rc)));
}
void must(const char *what, int64_t rc) {
  if (rc < 0) give_up(what, rc);
}

// ---- texts between the processes ----

void tell(int socket, const std::string &text) {
  const auto length = uint32_t(text.size());
  std::string bytes(reinterpret_cast<const char *>(&length), sizeof length);
  bytes += text;
  if (::write(socket, bytes.data(), bytes.size()) != ssize_t(bytes.size()))
    give_up("write to a process", errno);
}

std::string hear(int socket) {
  const auto take = [&](char *to, size_t size) {
    for (size_t n = 0; n < size;) {
      const ssize_t got = ::read(socket, to + n, size - n);
      if (got <= 0) throw std::runtime_error("a process has ended too early");
      n += size_t(got);
    }
  };
  uint32_t length = 0;
  take(reinterpret_cast<char *>(&length), sizeof length);
  std::string text(length, '\0');
  take(text.data(), length);
  return text;
}

// ---- one process ----

class Rank {
 public:
  Rank(int number, int socket) : number_(number), socket_(socket) {}
  void run();

 private:
  void open();
  void meet();
  void wait_until(const std::function<bool()> &done);
  uint64_t wait_completion(fid_cq *cq);
  void defer_a_write();
  void send_three();
  void join();
  double reduce(const double &operand, int op);
  std::string counters();

  const int number_, socket_;
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_eq *eq_ = nullptr;
  fid_cq *tx_ = nullptr, *rx_ = nullptr;
  fid_cntr *received_ = nullptr, *written_ = nullptr;
  fid_av *av_ = nullptr;
  fid_ep *ep_ = nullptr;
  fid_mr *window_mr_ = nullptr;
  fid_mc *group_ = nullptr;
  uint64_t window_ = 0;
  std::array<fi_addr_t, kRanks> at_{};
};

void Rank::open() {
  fi_info *const hints = fi_allocinfo();
  if (hints == nullptr) give_up("fi_allocinfo", FI_ENOMEM);
  hints->caps = FI_MSG | FI_RMA | FI_TRIGGER | FI_COLLECTIVE;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED;
  hints->fabric_attr->prov_name = strdup("cxi");
  const int rc =
      fi_getinfo(kApi, number_ % 2 == 0 ? "cxi0" : "cxi1", nullptr, FI_SOURCE, hints, &info_);
  fi_freeinfo(hints);
  must("fi_getinfo", rc);
  must("fi_fabric", fi_fabric(info_->fabric_attr, &fabric_, nullptr));
  must("fi_domain", fi_domain(fabric_, info_, &domain_, nullptr));
  fi_eq_attr events{};
  must("fi_eq_open", fi_eq_open(fabric_, &events, &eq_, nullptr));
  fi_cq_attr completions{};
  completions.format = FI_CQ_FORMAT_CONTEXT;
  must("fi_cq_open", fi_cq_open(domain_, &completions, &tx_, nullptr));
  must("fi_cq_open", fi_cq_open(domain_, &completions, &rx_, nullptr));
  fi_cntr_attr counter{};
  must("fi_cntr_open", fi_cntr_open(domain_, &counter, &received_, nullptr));
  must("fi_cntr_open", fi_cntr_open(domain_, &counter, &written_, nullptr));
  fi_av_attr addresses{};
  must("fi_av_open", fi_av_open(domain_, &addresses, &av_, nullptr));
  must("fi_endpoint", fi_endpoint(domain_, info_, &ep_, nullptr));
  must("fi_ep_bind", fi_ep_bind(ep_, &eq_->fid, 0));
  must("fi_ep_bind", fi_ep_bind(ep_, &tx_->fid, FI_TRANSMIT));
  must("fi_ep_bind", fi_ep_bind(ep_, &rx_->fid, FI_RECV));
  must("fi_ep_bind", fi_ep_bind(ep_, &received_->fid, FI_RECV));
  must("fi_ep_bind", fi_ep_bind(ep_, &av_->fid, 0));
  must("fi_enable", fi_enable(ep_));
  must("fi_mr_reg", fi_mr_reg(domain_, &window_, sizeof window_, FI_REMOTE_WRITE, 0, kKey, 0,
                              &window_mr_, nullptr));
  must("fi_mr_bind", fi_mr_bind(window_mr_, &ep_->fid, 0));
  must("fi_mr_enable", fi_mr_enable(window_mr_));
}

void Rank::meet() {
  char name[64];
  size_t size = sizeof name;
  must("fi_getname", fi_getname(&ep_->fid, name, &size));
  tell(socket_, std::string(name, size));
  for (fi_addr_t &peer : at_) {
    const std::string other = hear(socket_);
    if (fi_av_insert(av_, other.data(), 1, &peer, 0, nullptr) != 1)
      give_up("fi_av_insert", FI_EINVAL);
  }
}

void Rank::wait_until(const std::function<bool()> &done) {
  while (!done()) {
    fi_cq_read(tx_, nullptr, 0);  // makes progress
    ::usleep(0);
  }
}

uint64_t Rank::wait_completion(fid_cq *cq) {
  fi_cq_entry entry{};
  ssize_t rc = 0;
  wait_until([&] { return (rc = fi_cq_read(cq, &entry, 1)) != -FI_EAGAIN; });
  if (rc == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    fi_cq_readerr(cq, &error, 0);
    give_up("an operation", error.err);
  }
  must("fi_cq_read", rc);
  return uint64_t(rc);
}

// Rank 0: once three messages have come, its NIC writes to rank 1.
void Rank::defer_a_write() {
  uint64_t value = kWritten;
  iovec iov{&value, sizeof value};
  fi_rma_iov target{0, sizeof value, kKey};
  fi_op_rma write{};
  write.ep = ep_;
  write.msg.msg_iov = &iov;
  write.msg.iov_count = 1;
  write.msg.addr = at_[1];
  write.msg.rma_iov = &target;
  write.msg.rma_iov_count = 1;
  fi_deferred_work work{};
  work.threshold = 3;
  work.triggering_cntr = received_;
  work.completion_cntr = written_;
  work.op_type = FI_OP_WRITE;
  work.op.rma = &write;
  char places[3][8];
  for (auto &place : places)
    must("fi_recv", fi_recv(ep_, place, sizeof place, nullptr, FI_ADDR_UNSPEC, nullptr));
  must("FI_QUEUE_WORK", fi_control(&domain_->fid, FI_QUEUE_WORK, &work));
  for (int i = 0; i < 2; ++i) wait_completion(rx_);
  tell(socket_, "two");
  hear(socket_);
  wait_completion(rx_);
  wait_until([&] { return fi_cntr_read(written_) == 1; });
  tell(socket_, "written");
}

void Rank::send_three() {
  char byte = 1;
  const auto send = [&] {
    must("fi_send", fi_send(ep_, &byte, 1, nullptr, at_[0], nullptr));
    wait_completion(tx_);
  };
  send();
  send();
  hear(socket_);  // they have come
  const uint64_t before = *const_cast<volatile uint64_t *>(&window_);
  tell(socket_, std::to_string(before));
  send();
  wait_until([&] { return *const_cast<volatile uint64_t *>(&window_) != 0; });
  tell(socket_, std::to_string(window_));
}

void Rank::join() {
  fi_av_set_attr attr{};
  attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
  fid_av_set *set = nullptr;
  must("fi_av_set", fi_av_set(av_, &attr, &set, nullptr));
  for (const fi_addr_t peer : at_) must("fi_av_set_insert", fi_av_set_insert(set, peer));
  must("fi_join_collective", fi_join_collective(ep_, FI_ADDR_NOTAVAIL, set, 0, &group_, nullptr));
  fi_close(&set->fid);
  uint32_t event = 0;
  fi_eq_entry entry{};
  ssize_t rc = 0;
  wait_until([&] { return (rc = fi_eq_read(eq_, &event, &entry, sizeof entry, 0)) != -FI_EAGAIN; });
  must("joining", rc);
  if (event != FI_JOIN_COMPLETE) give_up("joining", FI_EIO);
}

double Rank::reduce(const double &operand, int op) {
  double result = 0;
  must("fi_allreduce", fi_allreduce(ep_, &operand, 1, nullptr, &result, nullptr, fi_mc_addr(group_),
                                    FI_DOUBLE, fi_op(op), 0, nullptr));
  wait_completion(tx_);
  return result;
}

// "name value" of each, as `weft stats` shows them of a process that runs.
std::string Rank::counters() {
  void *ops = nullptr;
  must("fi_open_ops", fi_open_ops(&fabric_->fid, WEFT_COUNTERS_OPS, 0, &ops, nullptr));
  const auto &read = *static_cast<const weft_counters_ops *>(ops);
  std::vector<weft_counter> all(read.read(&fabric_->fid, nullptr, 0));
  read.read(&fabric_->fid, all.data(), all.size());
  std::string text;
  for (const weft_counter &one : all)
    text += std::string(one.name) + " " + std::to_string(one.value) + "\n";
  return text;
}

void Rank::run() {
  open();
  meet();
  if (number_ == 0) defer_a_write();
  if (number_ == 1) send_three();
  join();
  constexpr double kOperands[kRanks] = {1e16, 1, -1e16, 3.5};
  char text[100];
  std::snprintf(text, sizeof text, "%g %.17g", reduce(number_ + 1, FI_SUM),
                reduce(kOperands[number_], FI_CXI_REPSUM));
  tell(socket_, text);
  tell(socket_, counters());
  hear(socket_);  // all have told
  fid *const objects[] = {&group_->fid,   &window_mr_->fid, &ep_->fid,    &av_->fid,
                          &written_->fid, &received_->fid,  &rx_->fid,    &tx_->fid,
                          &domain_->fid,  &eq_->fid,        &fabric_->fid};
  for (fid *const object : objects) must("fi_close", fi_close(object));
  fi_freeinfo(info_);
}

// ---- all of them ----

class Show {
 public:
  ~Show() {
    for (const pid_t child : children_)
      if (child > 0) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
  }
  void start(int rank);
  bool run();

 private:
  void check(bool good, const char *what) {
    std::printf("  %-66s %s\n", what, good ? "yes" : "NO");
    good_ &= good;
  }
  void introduce();
  void show_deferred();
  void show_reductions();
  void show_counters();

  std::array<pid_t, kRanks> children_{};
  std::array<int, kRanks> sockets_{};
  bool good_ = true;
};

void Show::start(int rank) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) give_up("socketpair", errno);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) give_up("fork", errno);
  if (child == 0) {
    children_ = {};
    ::close(ends[0]);
    for (int i = 0; i < rank; ++i) ::close(sockets_[size_t(i)]);
    ::alarm(kSeconds);
    int status = 1;
    try {
      Rank(rank, ends[1]).run();
      status = 0;
    } catch (const std::exception &error) {
      std::fprintf(stderr, "weft-cxi-show: rank %d: %s\n", rank, error.what());
    }
    ::_exit(status);
  }
  ::close(ends[1]);
  children_[size_t(rank)] = child;
  sockets_[size_t(rank)] = ends[0];
}

void Show::introduce() {
  std::printf("== four processes on two NICs in software\n");
  std::array<std::string, kRanks> names;
  for (size_t i = 0; i < kRanks; ++i) {
    names[i] = hear(sockets_[i]);
    uint32_t word = 0;
    std::memcpy(&word, names[i].data(), std::min(sizeof word, names[i].size()));
    std::printf("  rank %zu on cxi%zu: NIC address 0x%x, PID %u\n", i, i % 2, word >> 9,
                word & 511);
  }
  for (const int socket : sockets_)
    for (const std::string &name : names) tell(socket, name);
}

void Show::show_deferred() {
  std::printf("\n== a write of rank 0 that its NIC starts when three messages have come\n");
  hear(sockets_[0]);
  tell(sockets_[1], "go on");
  const std::string before = hear(sockets_[1]);
  std::printf("  after two messages rank 1 has in its memory: %s\n", before.c_str());
  tell(sockets_[0], "go on");
  const std::string after = hear(sockets_[1]);
  std::printf("  after the third:                             %s\n", after.c_str());
  hear(sockets_[0]);
  check(before == "0" && after == std::to_string(kWritten), "it was written then, and not before?");
}

void Show::show_reductions() {
  std::printf("\n== reductions of all four (fi_allreduce)\n");
  bool same = true;
  for (size_t i = 0; i < kRanks; ++i) {
    const std::string text = hear(sockets_[i]);
    const size_t space = text.find(' ');
    std::printf("  rank %zu: 1 + 2 + 3 + 4 = %s; 1e16 + 1 - 1e16 + 3.5 = %s\n", i,
                text.substr(0, space).c_str(), text.substr(space + 1).c_str());
    same &= text == "10 4.5";
  }
  check(same, "all have the same, and the reproducible sum has lost nothing?");
}

void Show::show_counters() {
  std::printf("\n== the provider's counters (`weft stats` shows those of any process)\n  %-24s",
              "");
  std::map<std::string, std::array<unsigned long long, kRanks>> counters;
  for (size_t i = 0; i < kRanks; ++i) {
    const std::string text = hear(sockets_[i]);
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      char name[64];
      unsigned long long value = 0;
      if (std::sscanf(text.c_str() + at, "%63s %llu", name, &value) == 2) counters[name][i] = value;
    }
    std::printf(" rank %zu", i);
  }
  std::printf("\n");
  for (const auto &[name, values] : counters) {
    if (values == std::array<unsigned long long, kRanks>{}) continue;
    std::printf("  %-24s %6llu %6llu %6llu %6llu\n", name.c_str(), values[0], values[1], values[2],
                values[3]);
  }
  bool expected = counters["deferred"][0] == 1;
  for (size_t i = 0; i < kRanks; ++i)
    expected &= counters["collectives"][i] == 2 && counters["groups_joined"][i] == 1 &&
                counters["collectives_failed"][i] == 0;
  check(expected, "one deferred write; two reductions at each, none has failed?");
}

bool Show::run() {
  for (int rank = 0; rank < kRanks; ++rank) start(rank);
  introduce();
  show_deferred();
  show_reductions();
  show_counters();
  for (const int socket : sockets_) tell(socket, "end");
  bool ended = true;
  for (pid_t &child : children_) {
    int status = 0;
    ended &= ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    child = 0;
  }
  check(ended, "all processes have closed what they had open?");
  std::printf("\n%s\n", good_ ? "All is as it should be." : "Something is not as it should be.");
  return good_;
}

}  // namespace

int main(int argc, char **) {
  if (argc != 1) {
    std::printf("weft-cxi-show: no options; shows what cxi does on NICs in software\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return Show().run() ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "weft-cxi-show: %s\n", error.what());
    return 1;
  }
}
