// SPDX-License-Identifier: BSD-2-Clause
// Random hints with and without FI_LINK=shm: whatever a program is offered without the variable, it
// is offered with it, once, and each answer opens.
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr size_t kQuestions = 250;

struct Answer {
  std::string what;  // name, fabric, domain, type, format, source
  uint64_t caps = 0;
  bool near = false;
  bool opened = true;
};
struct Question {
  std::string text;
  uint64_t caps = 0;
  std::vector<Answer> answers;
};

using Info = std::unique_ptr<fi_info, void (*)(fi_info *)>;

class Asker {
 public:
  explicit Asker(uint64_t seed) : random_(seed) {}

  // Writes a line for the question, and one for each answer.
  void ask(FILE *out) {
    const Info hints = make_hints();
    const uint32_t version =
        one_of<uint32_t>({FI_VERSION(1, 5), FI_VERSION(1, 17), FI_VERSION(2, 0)});
    const bool is_source = one_in(4);
    const char *const node = is_source || one_in(6) ? "127.0.0.1" : nullptr;
    fi_info *list = nullptr;
    const int ret =
        fi_getinfo(version, node,
                   is_source         ? "0"
                   : node != nullptr ? "7471"
                                     : nullptr,
                   is_source ? FI_SOURCE : 0, one_in(12) ? nullptr : hints.get(), &list);
    const Info owned(ret == 0 ? list : nullptr, fi_freeinfo);
    std::string text = fi_tostr(hints.get(), FI_TYPE_INFO);
    std::ranges::replace(text, '\n', ' ');
    std::fprintf(out, "? %lx %d %s\n", static_cast<unsigned long>(hints->caps), ret, text.c_str());
    for (fi_info *info = owned.get(); info != nullptr; info = info->next) tell(out, *info);
  }

 private:
  bool one_in(unsigned n) { return random_() % n == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  Info make_hints() {
    Info hints(fi_allocinfo(), fi_freeinfo);
    hints->ep_attr->type = one_of({FI_EP_UNSPEC, FI_EP_RDM, FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM});
    constexpr uint64_t kCaps[] = {
        FI_MSG,        FI_TAGGED,        FI_RMA,       FI_ATOMIC,     FI_TAGGED, FI_SEND,
        FI_RECV,       FI_DIRECTED_RECV, FI_SOURCE,    FI_MULTI_RECV, FI_FENCE,  FI_RMA_EVENT,
        FI_TRIGGER,    FI_SHARED_AV,     FI_PEER,      FI_AV_USER_ID, FI_HMEM,   FI_COLLECTIVE,
        FI_LOCAL_COMM, FI_REMOTE_COMM,   FI_SOURCE_ERR};
    for (unsigned i = one_in(4) ? 0 : 1 + random_() % 3; i > 0; --i)
      hints->caps |= kCaps[random_() % (one_in(2) ? 4 : std::size(kCaps))];
    hints->addr_format =
        one_of<uint32_t>({0, 0, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR});
    hints->mode = one_of<uint64_t>({0, FI_CONTEXT, ~0ULL});
    if (const char *name = one_of<const char *>(
            {nullptr, nullptr, "tcp", "tcp;ofi_rxm", "ofi_rxm", "^udp", "udp", "sockets", "shm"}))
      hints->fabric_attr->prov_name = strdup(name);
    hints->domain_attr->mr_mode = one_of<int>(
        {0, FI_MR_BASIC, FI_MR_SCALABLE,
         FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT});
    if (one_in(6))
      hints->domain_attr->threading =
          one_of({FI_THREAD_SAFE, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION});
    if (one_in(6))
      hints->domain_attr->control_progress = one_of({FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL});
    if (one_in(6))
      hints->domain_attr->data_progress = one_of({FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL});
    if (one_in(6)) hints->domain_attr->av_type = one_of({FI_AV_TABLE, FI_AV_MAP});
    if (one_in(6)) hints->tx_attr->size = size_t{1} << random_() % 20;
    if (one_in(6)) hints->tx_attr->inject_size = size_t{1} << random_() % 16;
    if (one_in(6))
      hints->tx_attr->msg_order = one_of<uint64_t>({FI_ORDER_SAS, FI_ORDER_RAW, FI_ORDER_WAW});
    if (one_in(6))
      hints->tx_attr->op_flags =
          one_of<uint64_t>({FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE});
    if (one_in(8)) hints->ep_attr->tx_ctx_cnt = 2;
    if (one_in(8)) hints->ep_attr->rx_ctx_cnt = one_of<size_t>({2, FI_SHARED_CONTEXT});
    if (one_in(8)) hints->ep_attr->max_msg_size = size_t{1} << random_() % 40;
    return hints;
  }

  void tell(FILE *out, fi_info &info) {
    char source[128] = "-";
    size_t length = sizeof source;
    if (info.src_addr != nullptr && info.addr_format != FI_ADDR_STR) {
      length = 0;
      for (size_t i = 0; i < std::min<size_t>(info.src_addrlen, 28); ++i)
        length += std::snprintf(source + length, sizeof source - length, "%02x",
                                static_cast<unsigned char *>(info.src_addr)[i]);
    }
    std::ostringstream what;
    what << info.fabric_attr->prov_name << ' ' << info.fabric_attr->name << ' '
         << info.domain_attr->name << ' ' << info.ep_attr->type << ' ' << info.addr_format << ' '
         << source;
    const bool near = FI_MAJOR(info.fabric_attr->prov_version) == 0;
    std::ostringstream kind;
    kind << info.fabric_attr->prov_version << ' ' << info.caps << ' ' << what.str();
    bool opened = true;
    if (tried_.insert(kind.str()).second) opened = opens(info);
    std::fprintf(out, "= %d %d %lx %s\n", int(near), int(opened),
                 static_cast<unsigned long>(info.caps), what.str().c_str());
  }

  static bool opens(fi_info &info) {
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_ep *ep = nullptr;
    const bool opened = fi_fabric(info.fabric_attr, &fabric, nullptr) == 0 &&
                        fi_domain(fabric, &info, &domain, nullptr) == 0 &&
                        (info.ep_attr->tx_ctx_cnt > 1 || info.ep_attr->rx_ctx_cnt > 1 ||
                         fi_endpoint(domain, &info, &ep, nullptr) == 0);
    bool closed = true;
    if (ep != nullptr) closed = fi_close(&ep->fid) == 0;
    if (domain != nullptr) closed = fi_close(&domain->fid) == 0 && closed;
    if (fabric != nullptr) closed = fi_close(&fabric->fid) == 0 && closed;
    return opened && closed;
  }

  std::mt19937_64 random_;
  std::set<std::string> tried_;
};

std::vector<Question> parse(const std::string &text) {
  std::vector<Question> questions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(2));
    if (line[0] == '?') {
      Question &question = questions.emplace_back();
      words >> std::hex >> question.caps;
      std::getline(words, question.text);
    } else {
      Answer &answer = questions.back().answers.emplace_back();
      words >> answer.near >> answer.opened >> std::hex >> answer.caps >> std::ws;
      std::getline(words, answer.what);
    }
  }
  return questions;
}

// A process has one configuration, so each is asked in a process of its own.
std::vector<Question> answers_with(const char *link, uint64_t seed) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    setenv("FI_LINK", link, 1);
    FILE *out = fdopen(ends[1], "w");
    Asker asker(seed);
    for (size_t i = 0; i < kQuestions; ++i) asker.ask(out);
    std::fclose(out);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char chunk[65536];
  for (ssize_t got; (got = read(ends[0], chunk, sizeof chunk)) > 0;)
    text.append(chunk, size_t(got));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << link;
  return parse(text);
}

std::map<std::string, size_t> counted(const std::vector<Answer> &answers) {
  std::map<std::string, size_t> out;
  for (const Answer &one : answers) ++out[one.what + " " + std::to_string(one.caps)];
  return out;
}

class NearHints : public ::testing::TestWithParam<uint64_t> {};

TEST_P(NearHints, NothingIsLost) {
  // Capabilities that come unasked.
  constexpr uint64_t kFree =
      FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV | FI_RMA_PMEM;
  const char *given = std::getenv("SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : GetParam();
  SCOPED_TRACE("SEED=" + std::to_string(seed) + " repeats it");
  const std::vector<Question> plain = answers_with("none", seed), near = answers_with("shm", seed);
  ASSERT_EQ(plain.size(), kQuestions);
  ASSERT_EQ(near.size(), kQuestions);
  size_t through_memory = 0, both = 0, of_plain = 0;
  for (size_t i = 0; i < kQuestions; ++i) {
    SCOPED_TRACE("question " + std::to_string(i) + ": " + plain[i].text);
    const uint64_t free = plain[i].caps != 0 ? kFree & ~plain[i].caps : 0;
    for (const Answer &lost : plain[i].answers) {
      ++of_plain;
      EXPECT_FALSE(lost.near);
      EXPECT_TRUE(lost.opened) << lost.what;
      const bool is_there = std::ranges::any_of(near[i].answers, [&](const Answer &one) {
        return one.what == lost.what && (lost.caps & ~one.caps & ~free) == 0;
      });
      EXPECT_TRUE(is_there) << lost.what << " " << std::hex << lost.caps;
    }
    const std::map<std::string, size_t> expected = counted(plain[i].answers);
    for (const auto &[what, count] : counted(near[i].answers)) {
      const auto found = expected.find(what);
      EXPECT_LE(count, std::max<size_t>(1, found != expected.end() ? found->second : 0)) << what;
    }
    // Open MPI takes answers that differ in such capabilities alone for several NICs.
    for (const Answer &one : near[i].answers) {
      const auto superfluous = [&](const Answer &other) {
        return other.near && other.what == one.what && (one.caps & ~other.caps & ~free) == 0;
      };
      EXPECT_FALSE(!one.near && std::ranges::any_of(near[i].answers, superfluous)) << one.what;
    }
    for (const Answer &one : near[i].answers) {
      EXPECT_TRUE(one.opened) << one.what << (one.near ? " through memory " : " ") << std::hex
                              << one.caps;
      through_memory += one.near;
      both += !one.near;
    }
  }
  EXPECT_GT(of_plain, kQuestions / 4);
  EXPECT_GT(through_memory, 0u);
  EXPECT_GT(both, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NearHints, ::testing::Values(1, 2));

}  // namespace
