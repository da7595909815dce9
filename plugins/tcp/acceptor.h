// SPDX-License-Identifier: BSD-2-Clause
// Acceptor: a listening socket, and strangers who are in the middle of their connection request: of
// a passive endpoint, or of an FI_EP_RDM endpoint.
//
//   Acceptor acceptor(engine, settings, stats, *this);
//   WEFT_CHECK(acceptor.bind(local));  WEFT_CHECK(acceptor.listen(backlog));
//   void on_request(int fd, const ConnectReader &request) override;      // the socket is yours now
//
// A stranger has a deadline, a place among a bounded number, and 288 bytes; whatever else it sends
// closes its socket and adds one to a counter. Those for whom there is no place wait in the
// kernel's backlog. Out of descriptors, it stops accepting for a moment and says so, with the
// numbers. It answers no request. All with the engine's lock held.
#ifndef WEFT_PLUGINS_TCP_ACCEPTOR_H
#define WEFT_PLUGINS_TCP_ACCEPTOR_H

#include <weft/result.h>
#include <weft/sdk/address.h>
#include <weft/sdk/engine.h>

#include <list>
#include <string>

#include "plugins/tcp/keys.h"
#include "plugins/tcp/settings.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class Acceptor final : public sdk::Handler {
 public:
  class Client {
   public:
    // Whether one more request may come in, beside `unfinished` others. Who said no calls go_on()
    // when there is room.
    virtual bool takes_more(size_t) { return true; }
    // A request is complete. The descriptor is the client's, the reader is not.
    virtual void on_request(int fd, const ConnectReader &request) = 0;
    // accept() failed for a reason that lasts, said once until it works again.
    virtual void on_accept_failure(int error, const std::string &reason) = 0;

   protected:
    ~Client() = default;
  };

  // `pause_ns`: how long after a look in vain the next one may wait. A reader who spins would pay
  // for a system call each time; a new connection can wait for microseconds.
  Acceptor(const weft_instance *instance, sdk::Engine &engine, const Settings &settings,
           Stats &stats, Client &client, uint64_t pause_ns)
      : instance_(instance),
        engine_(engine),
        settings_(settings),
        stats_(stats),
        client_(client),
        pause_ns_(pause_ns) {}
  ~Acceptor() { close(); }

  // Strangers must show that they have the key. Before listen().
  void set_keys(Keys keys) { keys_ = std::move(keys); }
  // Takes the address; from then on name() is final. Again with another address: moves there.
  Result<void> bind(const sdk::SockAddr &local);
  Result<void> listen(int backlog);  // after bind()
  bool bound() const { return socket_ >= 0; }
  bool listening() const { return listening_; }
  const sdk::SockAddr &name() const { return name_; }
  void close();
  // The socket, bound and not listening: the caller's from now on. -1: there is none.
  int release();
  // The client has room again.
  void go_on();

  void on_event(uint32_t events) override;
  void on_deadline() override;

 private:
  // Somebody who connected and has not finished its request.
  class Stranger final : public sdk::Handler {
   public:
    Stranger(Acceptor &acceptor, int fd)
        : acceptor_(acceptor),
          socket_(fd),
          exchange_(acceptor.keys_.exchange(ConnectRole::kPassive)) {}
    void on_event(uint32_t events) override;
    void on_deadline() override;

   private:
    friend class Acceptor;
    void say_no();

    Acceptor &acceptor_;
    int socket_;
    std::unique_ptr<KeyExchange> exchange_;  // until it has shown its key
    ConnectReader reader_{ConnectRole::kPassive};
    std::list<Stranger>::iterator self_;
  };

  bool has_room() {
    return strangers_.size() < max_strangers_ && client_.takes_more(strangers_.size());
  }
  void hold();
  void accept_failed(int error);
  int forget(Stranger &stranger);  // gives its socket back
  void dismiss(Stranger &stranger, Stat why);

  const weft_instance *const instance_;
  sdk::Engine &engine_;
  const Settings &settings_;
  Stats &stats_;
  Client &client_;
  const uint64_t pause_ns_;
  Keys keys_;
  uint64_t next_look_ = 0;
  size_t max_strangers_ = 0;
  sdk::SockAddr name_;
  int socket_ = -1;
  bool listening_ = false;
  bool full_ = false;  // as many strangers as there may be
  bool failure_told_ = false;
  std::list<Stranger> strangers_;
};

}  // namespace weft::tcp

#endif
