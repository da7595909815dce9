// SPDX-License-Identifier: BSD-2-Clause
// MetricsServer: serves one text over HTTP on 127.0.0.1, whatever the other clients do.
//
// Example:
//     #include <cstdio>
//     Result<void> serve(int port) {
//       MetricsServer server([]() -> Result<std::string> { return std::string("up 1\n"); });
//       WEFT_TRY(const int taken, server.listen(port));
//       std::printf("http://127.0.0.1:%d/metrics\n", taken);
//       return server.serve();
//     }
//
// Every user of the host may connect. A client has `patience` for its request, and then for taking
// the answer. At most `most_clients` are connected: the one that is silent for longest makes room
// for the next, unless it has spoken within `grace`. All whose requests are complete get one text,
// so a crowd costs no more than one of them. One thread; each connection has one request. Not for
// networks: there is no encryption, and no name of a user.
#ifndef WEFT_TOOLS_STATS_METRICS_SERVER_H
#define WEFT_TOOLS_STATS_METRICS_SERVER_H

#include <absl/time/time.h>
#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <string_view>

namespace weft::stats {

// What the bytes of a client ask for so far.
enum class HttpAsk {
  kNotWhole,  // more bytes must come
  kMetrics,
  kIndex,
  kUnknown,  // another path
  kOther,    // another method than GET
  kNoHttp
};
HttpAsk parse_ask(std::string_view received);

struct MetricsServerOptions {
  size_t most_clients = 16;
  absl::Duration patience = absl::Seconds(5);
  absl::Duration grace = absl::Milliseconds(200);
};

class MetricsServer {
 public:
  using Metrics = std::function<Result<std::string>()>;
  static constexpr size_t kMaxRequest = 8192;

  explicit MetricsServer(Metrics metrics, const MetricsServerOptions &options = {})
      : metrics_(std::move(metrics)), options_(options) {}

  // 0: any free port. The port. Errors: it is taken.
  Result<int> listen(int port);
  // Until `stop` can be read; -1: for ever.
  Result<void> serve(int stop = -1);

 private:
  enum class Phase { kAsks, kWaits, kTakes, kLeaves };
  struct Client {
    sdk::UniqueFd socket;
    Phase phase = Phase::kAsks;
    HttpAsk ask = HttpAsk::kNotWhole;
    std::string bytes;  // of the request, then those of the answer that it has not taken
    absl::Time heard;   // it came, or sent or took bytes
    absl::Time until;   // the end of the patience with its phase
  };
  using Clients = std::list<Client>;

  void step(Client &client, absl::Time now);
  void read(Client &client, absl::Time now);
  void write(Client &client, absl::Time now);
  void answer_all();
  void accept_more(absl::Time now);
  bool make_room(absl::Time now);
  void drop_late(absl::Time now);
  Clients::iterator most_silent();
  absl::Time next_deadline() const;

  const Metrics metrics_;
  const MetricsServerOptions options_;
  sdk::UniqueFd listener_;
  Clients clients_;
  absl::Time pause_until_ = absl::InfinitePast();  // of accepting
};

}  // namespace weft::stats

#endif
