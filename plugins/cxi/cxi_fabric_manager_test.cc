// SPDX-License-Identifier: BSD-2-Clause
// Groups whose multicast addresses a fabric manager gives (FI_CXI_COLL_FABRIC_MGR_URL; fi_cxi.7,
// COLLECTIVE OPERATIONS and ENVIRONMENT VARIABLES): a manager is in the process of the test, and
// those that ask are in another.
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cxi/test_team.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kMembers = 3;

class Manager {
 public:
  struct Answer {
    int status = 201;
    std::string text;
  };
  // What it says to one request after the other, and then again and again the last. A slow one
  // takes nothing back before somebody releases it.
  explicit Manager(std::vector<Answer> answers, bool slow = false)
      : slow_(slow), answers_(std::move(answers)) {
    server_.Post("/multicast",
                 [this](const httplib::Request &request, httplib::Response &response) {
                   const std::lock_guard guard(mutex_);
                   asked.push_back(nlohmann::json::parse(request.body, nullptr, false));
                   tokens.push_back(request.get_header_value("Authorization"));
                   const Answer &answer = answers_[std::min(asked.size(), answers_.size()) - 1];
                   response.status = answer.status;
                   response.set_content(answer.text, "application/json");
                 });
    server_.Delete(R"(/multicast/(\d+))",
                   [this](const httplib::Request &request, httplib::Response &response) {
                     std::unique_lock guard(mutex_);
                     given_back.push_back(request.matches[1]);
                     response.status = 204;
                     changed_.notify_all();
                     if (slow_) changed_.wait_for(guard, kPatience, [this] { return released; });
                   });
    // For the members of a slow manager.
    server_.Get("/asked-back", [this](const httplib::Request &, httplib::Response &) {
      std::unique_lock guard(mutex_);
      changed_.wait_for(guard, kPatience, [this] { return !given_back.empty(); });
    });
    server_.Get("/release", [this](const httplib::Request &, httplib::Response &) {
      const std::lock_guard guard(mutex_);
      released = true;
      changed_.notify_all();
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    if (port_ < 0) throw std::runtime_error("no port for a fabric manager");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~Manager() { end(); }
  // From now on nobody writes what it has heard.
  void end() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }
  std::string url() const {
    return "FI_CXI_COLL_FABRIC_MGR_URL=http://127.0.0.1:" + std::to_string(port_) + "/multicast/";
  }

  // After end().
  std::vector<nlohmann::json> asked;
  std::vector<std::string> tokens, given_back;
  bool released = false;

 private:
  const bool slow_;
  std::vector<Answer> answers_;
  httplib::Server server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  int port_ = -1;
};

// The members' part of a test; it is done if this returns false.
bool in_job(const std::string &url) {
  // The proxy is nobody: who asks it hears nothing.
  return in_fresh_process({url.c_str(), "FI_CXI_COLL_JOB_ID=job", "FI_CXI_COLL_JOB_STEP_ID=7",
                           "FI_CXI_COLL_MCAST_TOKEN=secret", "http_proxy=http://127.0.0.1:1"});
}

// As the manager writes a NIC.
std::string root_of(Node &node) {
  const uint32_t nid = *reinterpret_cast<const uint32_t *>(node.name().data()) >> 9 & 0xfffff;
  char text[16];
  std::snprintf(text, sizeof text, "%x:%02x:%02x", nid >> 16, nid >> 8 & 0xff, nid & 0xff);
  return text;
}
std::string answer_of(unsigned address, const std::string &root) {
  return nlohmann::json{{"mcastID", address}, {"hwRoot", root}}.dump();
}

// All members join one group, and this is what they hear.
std::vector<Joined> join_all() {
  Net net(kMembers, collective_options());
  std::vector<Handle<fid_mc>> groups(kMembers);
  for (size_t i = 0; i < kMembers; ++i) {
    std::vector<fi_addr_t> all;
    for (size_t of = 0; of < kMembers; ++of) all.push_back(net.at(i, of));
    must(fi_join_collective(net[i].ep, FI_ADDR_NOTAVAIL, make_set(net[i].av, all), 0,
                            groups[i].out(), nullptr));
  }
  std::vector<Joined> heard;
  for (size_t i = 0; i < kMembers; ++i) {
    std::optional<Joined> joined;
    EXPECT_TRUE(net.until([&] { return (joined = poll_join(net[i].eq)).has_value(); }));
    heard.push_back(joined.value_or(Joined{}));
  }
  return heard;
}

TEST(CxiFabricManager, EachGroupGetsAnAddressAndGivesItBack) {
  if (is_fresh_process()) {
    Team team(kMembers);
    EXPECT_EQ(team.allreduce<int64_t>({{1}, {2}, {4}}, FI_INT64, FI_SUM)[2][0], 7);
    std::vector<Handle<fid_mc>> more;
    for (size_t i = 0; i < kMembers; ++i) more.push_back(team.join(i));
    for (size_t i = 0; i < kMembers; ++i) EXPECT_EQ(team.wait_joined(i).err, 0);
    return;
  }
  const std::string root = root_of(Net(1, collective_options())[0]);
  Manager manager({{201, answer_of(17, root)}, {200, answer_of(9000, root)}});
  ASSERT_FALSE(in_job(manager.url()));
  manager.end();
  ASSERT_EQ(manager.asked.size(), 2u) << "the roots ask, and nobody else";
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(manager.tokens[i], "Bearer secret");
    EXPECT_EQ(manager.asked[i]["macs"].size(), kMembers);
    EXPECT_EQ(manager.asked[i]["vni"], 10);
    EXPECT_EQ(manager.asked[i]["jobID"], "job");
    EXPECT_EQ(manager.asked[i]["jobStepID"], "7");
  }
  std::ranges::sort(manager.given_back);
  EXPECT_EQ(manager.given_back, (std::vector<std::string>{"17", "9000"}));
}

struct Refusal {
  const char *name;
  int status;
  const char *text;  // R: the NIC's own
  int err, prov_errno;
  bool given_back;
};
class CxiFabricManagerRefusal : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(
    Reasons, CxiFabricManagerRefusal,
    ::testing::Values(Refusal{"Status", 403, "{}", FI_EACCES, FI_CXI_ERRNO_JOIN_SERVER_ERR, false},
                      Refusal{"NoJson", 200, "hello", FI_EACCES, FI_CXI_ERRNO_JOIN_SERVER_ERR,
                              false},
                      Refusal{"NoAddress", 200, R"({"hwRoot": "0:00:01"})", FI_EADDRNOTAVAIL,
                              FI_CXI_ERRNO_JOIN_MCAST_INVALID, false},
                      Refusal{"AStrangersRoot", 200, R"({"mcastID": 5, "hwRoot": "f:ff:fe"})",
                              FI_EADDRNOTAVAIL, FI_CXI_ERRNO_JOIN_HWROOT_INVALID, true}),
    [](const auto &info) { return std::string(info.param.name); });

TEST_P(CxiFabricManagerRefusal, AllMembersHearWhy) {
  const Refusal &refusal = GetParam();
  if (is_fresh_process()) {
    for (const Joined &joined : join_all()) {
      EXPECT_EQ(joined.err, refusal.err);
      EXPECT_EQ(joined.prov_errno, refusal.prov_errno);
    }
    return;
  }
  Manager manager({{refusal.status, refusal.text}});
  ASSERT_FALSE(in_job(manager.url()));
  manager.end();
  EXPECT_EQ(manager.asked.size(), 1u);
  EXPECT_EQ(manager.given_back.size(), refusal.given_back ? 1u : 0u);
}

TEST(CxiFabricManager, AnAddressThatIsInUseIsRefused) {
  if (is_fresh_process()) {
    Team team(kMembers);
    std::vector<Handle<fid_mc>> more;
    for (size_t i = 0; i < kMembers; ++i) more.push_back(team.join(i));
    for (size_t i = 0; i < kMembers; ++i) {
      const Joined joined = team.wait_joined(i);
      EXPECT_EQ(joined.err, FI_EADDRINUSE);
      EXPECT_EQ(joined.prov_errno, FI_CXI_ERRNO_JOIN_MCAST_INUSE);
    }
    return;
  }
  Manager manager({{201, answer_of(17, root_of(Net(1, collective_options())[0]))}});
  ASSERT_FALSE(in_job(manager.url()));
  manager.end();
  EXPECT_EQ(manager.asked.size(), 2u);
  EXPECT_EQ(manager.given_back, std::vector<std::string>{"17"}) << "that of the first group";
}

// Other endpoints of the domain go on while one that is closed waits for the manager.
TEST(CxiFabricManager, WhoWaitsForItHoldsNobodyUp) {
  if (is_fresh_process()) {
    const std::string url = std::getenv("FI_CXI_COLL_FABRIC_MGR_URL");
    httplib::Client manager(url.substr(0, url.rfind("/multicast")));
    Team team(kMembers);
    Node &other = team.net.add(collective_options(), {}, &team.net[0]);
    team.groups[0].reset();
    ASSERT_TRUE(manager.Get("/asked-back"));
    std::atomic<bool> closes{false}, closed{false};
    std::thread thread([&] {
      closes = true;
      team.net[0].ep.reset();
      closed = true;
    });
    while (!closes) std::this_thread::yield();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < end) fi_cq_read(other.tx_cq, nullptr, 0);
    EXPECT_FALSE(closed) << "the manager has not answered";
    EXPECT_LT(std::chrono::steady_clock::now(), end + std::chrono::seconds(2));
    EXPECT_TRUE(manager.Get("/release"));
    thread.join();
    return;
  }
  Manager manager({{201, answer_of(17, root_of(Net(1, collective_options())[0]))}}, true);
  ASSERT_FALSE(in_job(manager.url()));
  manager.end();
  EXPECT_EQ(manager.given_back, std::vector<std::string>{"17"});
  EXPECT_TRUE(manager.released);
}

TEST(CxiFabricManager, WhereNobodyAnswersJoiningFails) {
  if (!in_job("FI_CXI_COLL_FABRIC_MGR_URL=http://127.0.0.1:1/")) return;
  for (const Joined &joined : join_all()) {
    EXPECT_EQ(joined.err, FI_ECONNREFUSED);
    EXPECT_EQ(joined.prov_errno, FI_CXI_ERRNO_JOIN_CURL_FAILED);
  }
}

TEST(CxiFabricManager, GroupsInOneProcessAreNoneOfItsBusiness) {
  if (!in_job("FI_CXI_COLL_FABRIC_MGR_URL=http://127.0.0.1:1/")) return;
  cxip_comm_key key{};
  key.keytype = COMM_KEY_UNICAST;
  const Team team(kMembers, &key);
}

TEST(CxiFabricManager, WithoutAJobAGroupIsRefused) {
  if (!in_fresh_process({"FI_CXI_COLL_FABRIC_MGR_URL=http://127.0.0.1:1/"})) return;
  Net net(2, collective_options());
  Handle<fid_mc> group;
  const auto set = make_set(net[0].av, {net.at(0, 0), net.at(0, 1)});
  EXPECT_EQ(fi_join_collective(net[0].ep, FI_ADDR_NOTAVAIL, set, 0, group.out(), nullptr),
            -FI_EINVAL);
}

TEST(CxiFabricManager, ATokenIsNotSentInTheClear) {
  if (!in_fresh_process({"FI_CXI_COLL_FABRIC_MGR_URL=http://fabric.example/"})) return;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(find_info(collective_options()));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("it must begin with https://"), std::string::npos) << told;
  EXPECT_NE(told.find("it counts as not set"), std::string::npos) << told;
}

}  // namespace
}  // namespace weft::conformance::rdm
