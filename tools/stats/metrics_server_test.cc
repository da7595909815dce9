// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/metrics_server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>
#include <thread>
#include <vector>

namespace weft::stats {
namespace {

constexpr const char *kRequest = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

class Running {
 public:
  explicit Running(const MetricsServerOptions &options)
      : server_([]() -> Result<std::string> { return std::string("up 1\n"); }, options),
        stop_(eventfd(0, EFD_CLOEXEC)) {
    const Result<int> port = server_.listen(0);
    EXPECT_TRUE(port);
    port_ = port.value_or(0);
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(stop_.get())); });
  }
  ~Running() {
    const uint64_t one = 1;
    EXPECT_EQ(write(stop_.get(), &one, sizeof one), ssize_t(sizeof one));
    thread_.join();
  }
  int port() const { return port_; }

 private:
  MetricsServer server_;
  sdk::UniqueFd stop_;
  int port_ = 0;
  std::thread thread_;
};

class Visitor {
 public:
  explicit Visitor(const Running &server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval most{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  }
  bool say(std::string_view bytes) {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size());
  }
  // What comes until the server ends the connection.
  std::string hear() {
    std::string all;
    char piece[512];
    ssize_t got;
    while ((got = ::recv(socket_.get(), piece, sizeof piece, 0)) > 0)
      all.append(piece, size_t(got));
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "the connection stays";
    return all;
  }
  // Whether something comes, or the end, within a millisecond.
  bool is_told() const {
    pollfd one{socket_.get(), POLLIN, 0};
    return ::poll(&one, 1, 1) > 0;
  }
  bool gets_metrics() { return say(kRequest) && hear().ends_with("\r\n\r\nup 1\n"); }

 private:
  sdk::UniqueFd socket_;
};

std::vector<std::unique_ptr<Visitor>> crowd(const Running &server, size_t size) {
  std::vector<std::unique_ptr<Visitor>> all;
  while (all.size() < size) all.push_back(std::make_unique<Visitor>(server));
  return all;
}

TEST(MetricsServer, ASilentCrowdMakesRoomForWhoAsks) {
  const Running server({.patience = absl::Hours(1)});
  const auto silent = crowd(server, 40);
  EXPECT_TRUE(Visitor(server).gets_metrics());
}

TEST(MetricsServer, TheOneThatIsSilentForLongestMakesRoom) {
  const Running server(
      {.most_clients = 3, .patience = absl::Hours(1), .grace = absl::ZeroDuration()});
  Visitor slow(server), silent(server);
  EXPECT_TRUE(Visitor(server).gets_metrics());  // the server has both by now
  EXPECT_TRUE(slow.say("GET /metrics "));
  EXPECT_TRUE(Visitor(server).gets_metrics());  // the server has heard the slow one by now
  const auto more = crowd(server, 2);
  EXPECT_EQ(silent.hear(), "");
  EXPECT_TRUE(slow.say("HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(slow.hear().ends_with("up 1\n"));
}

TEST(MetricsServer, TheOneThatHasItsAnswerMakesRoomFirst) {
  const Running server(
      {.most_clients = 2, .patience = absl::Hours(1), .grace = absl::ZeroDuration()});
  Visitor slow(server);
  EXPECT_TRUE(slow.say("GET /metrics "));
  Visitor answered(server);  // stays connected
  EXPECT_TRUE(answered.gets_metrics());
  EXPECT_TRUE(Visitor(server).gets_metrics());
  EXPECT_TRUE(slow.say("HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(slow.hear().ends_with("up 1\n"));
}

TEST(MetricsServer, ARequestHasADeadline) {
  const Running server({.patience = absl::Milliseconds(100)});
  EXPECT_EQ(Visitor(server).hear(), "");
  Visitor slow(server);  // each of its bytes comes in time
  while (slow.say("G") && !slow.is_told()) continue;
  EXPECT_EQ(slow.hear(), "");
}

TEST(MetricsServer, ParsesWhatIsAsked) {
  const std::string long_one(MetricsServer::kMaxRequest, 'a');
  const std::pair<std::string, HttpAsk> kAsks[] = {
      {"", HttpAsk::kNotWhole},
      {"GET /metrics HTTP/1.1\r\n", HttpAsk::kNotWhole},
      {kRequest, HttpAsk::kMetrics},
      {"GET /metrics?a=b HTTP/1.0\r\n\r\nmore", HttpAsk::kMetrics},
      {"GET / HTTP/1.1\r\n\r\n", HttpAsk::kIndex},
      {"GET /metric HTTP/1.1\r\n\r\n", HttpAsk::kUnknown},
      {"POST /metrics HTTP/1.1\r\n\r\n", HttpAsk::kOther},
      {"GET /metrics\r\n\r\n", HttpAsk::kNoHttp},
      {"GET HTTP/1.1\r\n\r\n", HttpAsk::kNoHttp},
      {"\r\n\r\n", HttpAsk::kNoHttp},
      {"GET /metrics HTTP/2\r\n\r\n", HttpAsk::kNoHttp},
      {long_one, HttpAsk::kNoHttp}};
  for (const auto &[bytes, ask] : kAsks) EXPECT_EQ(parse_ask(bytes), ask) << bytes;
}

}  // namespace
}  // namespace weft::stats
