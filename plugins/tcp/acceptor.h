// SPDX-License-Identifier: BSD-2-Clause
// Acceptor: a listening socket, and the strangers whose connection request is not complete yet. A
// passive endpoint has one, and so has an FI_EP_RDM endpoint.
//
// Example:
//    class Listener final : private Acceptor::Client {
//     public:
//      Listener(const weft_instance *instance, sdk::Engine &engine, const Settings &settings,
//               Counters &counters)
//          : acceptor_(instance, engine, settings, counters, *this, /*pause_ns=*/0) {}
//      Result<void> open(const sdk::SockAddr &local, int backlog) {
//        WEFT_CHECK(acceptor_.bind(local));  // acceptor_.name(): the address, with its port
//        return acceptor_.listen(backlog);
//      }
//
//     private:
//      void on_request(int fd, const ConnectReader &request) override;  // owns `fd` from here on
//      void on_accept_failure(int error, const std::string &reason) override;
//      Acceptor acceptor_;
//    };
//
// A stranger has a deadline and 288 bytes for its request, and the number of strangers is bounded.
// A stranger that sends anything else loses its socket, and a counter goes up. At the bound, one
// that has been silent for kPatienceNs makes room (weft/sdk/peer/crowd.h); until then others wait
// in the kernel's backlog. Without free descriptors the acceptor pauses and logs the limits. It
// does not answer requests. All calls need the engine's lock.
#ifndef WEFT_PLUGINS_TCP_ACCEPTOR_H
#define WEFT_PLUGINS_TCP_ACCEPTOR_H

#include <weft/result.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/progress/engine.h>

#include <list>
#include <string>

#include "plugins/tcp/counters.h"
#include "plugins/tcp/keys.h"
#include "plugins/tcp/settings.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class Acceptor final : public sdk::Handler {
 public:
  class Client {
   public:
    // Whether one more request may come in, beside `unfinished` others. After a false the client
    // calls go_on() when there is room.
    virtual bool takes_more(size_t) { return true; }
    // A request is complete. The client owns the descriptor, not the reader.
    virtual void on_request(int fd, const ConnectReader &request) = 0;
    // accept() failed for a lasting reason. Called once until it succeeds again.
    virtual void on_accept_failure(int error, const std::string &reason) = 0;

   protected:
    ~Client() = default;
  };

  // `pause_ns`: at least so long between two looks for connections. An application that spins would
  // pay for a system call each time, and a new connection can wait for microseconds. While none
  // comes, the pause grows up to kLongestPause times that.
  Acceptor(const weft_instance *instance, sdk::Engine &engine, const Settings &settings,
           Counters &counters, Client &client, uint64_t pause_ns)
      : instance_(instance),
        engine_(engine),
        settings_(settings),
        counters_(counters),
        client_(client),
        pause_ns_(pause_ns),
        next_pause_ns_(pause_ns) {}
  ~Acceptor() { close(); }

  // Strangers must prove that they have the key. Call it before listen().
  void set_keys(Keys keys) { keys_ = std::move(keys); }
  // Before bind(). Accepted sockets inherit it.
  void set_dscp(uint8_t dscp) { dscp_ = dscp; }
  uint8_t dscp() const { return dscp_; }
  // Binds the socket; from then on name() is final. A second call moves to another address.
  Result<void> bind(const sdk::SockAddr &local);
  Result<void> listen(int backlog);  // after bind(); once more for another backlog
  // After bind(): nobody else can have the address, though connections are not taken before
  // listen().
  Result<void> reserve();
  bool bound() const { return socket_ >= 0; }
  bool listening() const { return listening_; }
  const sdk::SockAddr &name() const { return name_; }
  void close();
  // Gives the socket, bound and not listening, to the caller. -1: there is none.
  int release();
  // The client has room again.
  void go_on();

  void on_event(uint32_t events) override;
  void on_deadline() override;

 private:
  // A connection whose request is not complete.
  class Stranger final : public sdk::Handler {
   public:
    Stranger(Acceptor &acceptor, int fd, const sdk::SockAddr &from)
        : acceptor_(acceptor),
          socket_(fd),
          from_(from),
          useful_at_(sdk::now_ns()),
          exchange_(acceptor.keys_.exchange(ConnectRole::kPassive, fd)) {}
    void on_event(uint32_t events) override;
    void on_deadline() override;

   private:
    friend class Acceptor;
    void say_no();

    Acceptor &acceptor_;
    int socket_;
    const sdk::Address from_;
    uint64_t useful_at_;                     // when it came, or took a step of the exchange
    std::unique_ptr<KeyExchange> exchange_;  // until it has proved its key
    ConnectReader reader_{ConnectRole::kPassive};
    std::list<Stranger>::iterator self_;
  };

  bool is_full() const { return strangers_.size() >= max_strangers_; }
  bool has_room() { return !is_full() && client_.takes_more(strangers_.size()); }
  void take(int fd, const sdk::SockAddr &from);
  void make_room();
  void hold();
  void accept_failed(int error);
  int forget(Stranger &stranger);  // returns its socket
  void dismiss(Stranger &stranger, sdk::Counter &why);

  const weft_instance *const instance_;
  sdk::Engine &engine_;
  const Settings &settings_;
  Counters &counters_;
  Client &client_;
  const uint64_t pause_ns_;
  uint64_t next_pause_ns_;
  Keys keys_;
  uint8_t dscp_ = 0;
  uint64_t next_look_ = 0;
  size_t max_strangers_ = 0;
  sdk::SockAddr name_;
  int socket_ = -1;
  bool listening_ = false;
  bool full_ = false;  // accepts no more until go_on()
  bool failure_told_ = false;
  std::list<Stranger> strangers_;
};

}  // namespace weft::tcp

#endif
