// SPDX-License-Identifier: BSD-2-Clause
// PassiveCore: what every passive endpoint (fi_passive_ep) has: a name, an event queue, a backlog,
// and the requests that it reports.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Fabric;  // connections.h
//    class PassiveEndpoint final : public Object<PassiveEndpoint, fid_pep>, public PassiveCore {
//     public:
//      PassiveEndpoint(Connections &connections, const weft_instance *instance, PassiveStart start,
//                      void *context)
//          : Object(instance, FI_CLASS_PEP, context),
//            PassiveCore(connections, base(), std::move(start), /*backlog=*/128) {
//        fill_tables(*this);
//      }
//      static weft::Result<PassiveEndpoint *> open(Fabric &fabric, const fi_info &info, void *context);
//
//     private:
//      weft::Result<Address> bind_to(const Address &local) override;
//      weft::Result<Address> start_listening(int backlog) override;
//      void stop() override;
//      void on_connection(std::unique_ptr<ConnectRequest> request, std::string_view data) {
//        report(std::move(request), data);
//      }
//    };
//
// The calls of the application take the lock of the fabric's engine. What the derived class
// overrides is called with it held, and so is report().
#ifndef WEFT_SDK_OBJECTS_PASSIVE_H
#define WEFT_SDK_OBJECTS_PASSIVE_H

#include <weft/sdk/objects/connections.h>
#include <weft/sdk/unit/info_list.h>

#include <new>

namespace weft::sdk {

// What a passive endpoint begins with.
struct PassiveStart {
  static Result<PassiveStart> of(const weft_core_services *core, const fi_info &info);
  InfoList info;
  Address local;
};

class PassiveCore {
 public:
  PassiveCore(const PassiveCore &) = delete;
  PassiveCore &operator=(const PassiveCore &) = delete;

  const weft_instance *instance() const { return header_of(fid_)->instance; }
  struct fid *fid() const {
    return fid_;
  }
  const Address &local() const { return local_; }
  // An endpoint took the name (ConnectedCore::take_names) and binds to it itself. Needs the lock.
  void release_name() { stop(); }

  // fi_ops_cm
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  int listen();
  int reject(fid_t handle, const void *param, size_t len);

  // fi_ops_ep
  int getopt(int level, int name, void *value, size_t *length);

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 protected:
  // `fid` is that of the derived class.
  PassiveCore(Connections &connections, struct fid *fid, PassiveStart start, int backlog);
  virtual ~PassiveCore() = default;

  // Gives it its name, which peers may be told from now on, and makes it known. On an error
  // `passive` is gone.
  template <class P>
  static Result<P *> finish_open(P *passive, struct fid *fabric) {
    if (passive == nullptr) return fail(FI_ENOMEM, "no memory for a passive endpoint");
    PassiveCore &core = *passive;
    Result<void> done = core.take_name();
    if (done) done = passive->Object<P, fid_pep>::publish(fabric);
    if (!done) {
      core.leave();
      delete passive;
      return tl::unexpected(done.error());
    }
    core.join();
    return passive;
  }

  // Takes the name `local` and returns it as it is now: with a port. A second call moves to another
  // name. After an error there is none.
  virtual Result<Address> bind_to(const Address &local) = 0;
  virtual Result<Address> start_listening(int backlog) = 0;  // after bind_to()
  virtual void stop() = 0;                                   // neither listens nor has a name
  // What the info of a request has beyond the addresses.
  virtual Result<void> describe(fi_info &, const ConnectRequest &) { return {}; }
  // A request of the fabric was answered.
  virtual void on_room() {}

  // The event FI_CONNREQ; false: the request was dropped, and the log says why.
  bool report(std::unique_ptr<ConnectRequest> request, std::string_view data);
  void report_error(int error, std::string reason);
  int backlog() const { return backlog_; }

  Connections &connections_;

 private:
  friend class Connections;
  friend class ConnectedCore;
  friend class ConnectRequest;
  Result<void> take_name();
  void join();
  void leave();
  void drop_unread_requests();
  Result<void> check_free() const;
  Result<void> start();
  Result<fi_info *> request_info(InfoList &list, const ConnectRequest &request);

  struct fid *const fid_;
  const InfoList info_;
  Address local_;
  Eq *eq_ = nullptr;
  int backlog_;
  bool bound_ = false;
  bool listening_ = false;
  bool taken_ = false;  // an endpoint took its name
};

}  // namespace weft::sdk

#endif
