// SPDX-License-Identifier: BSD-2-Clause
// A double of libibverbs and librdmacm: devices, and the network between them, inside of one test
// process. A program that links `weft_verbs_double` in place of -libverbs -lrdmacm needs no device
// and no kernel module, and runs under sanitizers.
//
// Example:
//    // The names of the devices that a program sees while the network exists.
//    std::vector<std::string> names_of_devices() {
//      Network network;
//      network.add({.name = "dbl0", .addresses = {"10.99.0.1", "fd99::1"}});
//      network.add({.name = "dbl1", .addresses = {"10.99.1.1"}, .limits = {.max_qp_wr = 16}});
//      std::vector<std::string> names;
//      int count = 0;
//      ibv_device **list = ibv_get_device_list(&count);
//      for (int i = 0; i < count; ++i) names.emplace_back(ibv_get_device_name(list[i]));
//      ibv_free_device_list(list);
//      return names;
//    }
//
// Every call of both libraries goes to the one `Network` that exists; without one there is no
// device. The hardware works inside of the calls (Progress::kAtOnce), when the test calls step(),
// or in a thread. Each object is memory of its own, so ASan finds a use after its end, and the
// double reads and writes the memory of the application as a device does.
//
// Where the specification leaves a choice, the double takes the one that is harder for the caller:
// local and remote keys differ, an entry of a send queue is free when a completion behind it was
// polled, and a failed completion has only the fields that ibv_poll_cq(3) promises.
//
// It has no memory windows, no registration on demand, no ibv_wr_start(3) and no ibv_start_poll(3).
// AF_IB addresses are those of devices whose link layer is InfiniBand.
//
// Not for measuring, and not a check of what a real device does: soft-RoCE is there for that.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_DOUBLE_H
#define WEFT_PLUGINS_VERBS_DOUBLE_DOUBLE_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::verbs_double {

struct World;
struct Adapter;

// What a device has of each kind; ibv_query_device() reports it and the calls hold to it.
struct Limits {
  int max_qp = 4096;
  int max_qp_wr = 1024;
  int max_sge = 8;
  int max_sge_rd = 8;  // of reads; 1 with iWARP
  int max_cq = 4096;
  int max_cqe = 65536;
  int max_mr = 65536;
  uint64_t max_mr_size = uint64_t{1} << 40;
  int max_pd = 4096;
  int max_ah = 65536;
  int max_srq = 1024;
  int max_srq_wr = 4096;
  int max_srq_sge = 8;
  int max_rd_atom = 16;
  int max_mcast_grp = 64;
  int max_mcast_qp_attach = 64;
  uint32_t max_inline = 256;
  uint32_t max_msg_size = uint32_t{1} << 30;
};

// What a device can do. A call for something that it cannot do fails with EOPNOTSUPP.
struct Features {
  bool srq = true;
  bool xrc = true;
  bool atomics = true;
  bool dmabuf = true;  // of any descriptor that mmap(2) takes, such as one of memfd_create(2)
  bool rereg = true;
  bool resize_cq = true;
  bool multicast = true;
  bool last_receives = true;  // IBV_EVENT_QP_LAST_WQE_REACHED, which older soft-RoCE does not raise
  // What the side that asked for a connection sends first is read at once. Older siw may leave it
  // until more comes.
  bool reads_first = true;
  // Completions of a queue pair stay in their queue when it is destroyed, as on soft-RoCE.
  // Otherwise they are removed, as on other hardware.
  bool keeps_completions = true;
  bool reuses_numbers = false;  // a new queue pair has the number of one that is gone
};

struct DeviceOptions {
  std::string name = "dbl0";
  std::vector<std::string> addresses = {"10.99.0.1", "fd99::1"};  // IPv4 and IPv6
  Limits limits = {};
  Features features = {};
  ibv_mtu mtu = IBV_MTU_4096;
  bool infiniband = false;  // the link layer: InfiniBand (with LIDs), or Ethernet (RoCE v2)
  // Ethernet, but iWARP in place of RoCE: no immediates, datagrams, XRC or atomics; a message that
  // finds no receive ends the connection; what a read brings is written by the peer, by its rules;
  // a receive has a vector.
  bool iwarp = false;
  std::string sysfs_path = {};  // ibv_device::ibdev_path; /sys/class/infiniband/NAME by default
};

// When the hardware works.
enum class Progress {
  kAtOnce,   // before the call returns that gave it something to do
  kByStep,   // when the test calls Network::step(), in an order that the seed chooses
  kByThread  // in a thread of the network's, in an order that the seed chooses
};

// When something that waits for time to pass is given up: a peer that does not answer, a request to
// connect, a receiver without a receive where the retries are limited.
enum class Timers {
  kAtOnce,   // at the first attempt
  kOnDemand  // when the test calls Network::expire_timers()
};

struct NetworkOptions {
  Progress progress = Progress::kAtOnce;
  Timers timers = Timers::kAtOnce;
  uint64_t seed = 1;
  bool overtakes = true;      // reads and atomics may be passed by what follows without a fence
  int patience_seconds = 30;  // how long a call waits for acknowledgements of events, then abort()
};

// A datagram as a hostile device would send it: any header in front, any sender.
struct ForgedDatagram {
  std::array<uint8_t, 40> header = {};
  bool has_route = true;  // IBV_WC_GRH: the header means something
  bool has_immediate = false;
  uint32_t source = 0;  // the number of a queue pair
  uint16_t lid = 0;
  uint8_t service_level = 0;
  std::vector<uint8_t> bytes;
};

// An event of the connection manager as a hostile peer could cause it, or a kernel tell it.
struct ForgedEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_DISCONNECTED;
  int status = 0;
  std::vector<uint8_t> data;  // as delivered: at most 255 bytes
};

// A device, owned by its network.
class Device {
 public:
  explicit Device(Adapter &adapter) : adapter_(adapter) {}

  const std::string &name() const;

  // Changes the state of the port. IBV_EVENT_PORT_ERR or IBV_EVENT_PORT_ACTIVE tells it. Without an
  // active port nothing comes and nothing leaves.
  void set_port_state(ibv_port_state state);
  // The device is gone: IBV_EVENT_DEVICE_FATAL, RDMA_CM_EVENT_DEVICE_REMOVAL, its queue pairs
  // flush, and calls that make or post something fail with EIO.
  void remove();
  // The host of this device dies or, with false, is back: no peer gets an answer from it.
  void vanish(bool gone = true);
  // Queue pair `qp_num` alone never answers again.
  void silence(uint32_t qp_num);
  // The data of the queue pair in `qp_num` breaks in the device: IBV_EVENT_QP_FATAL, and it
  // flushes.
  void break_queue_pair(uint32_t qp_num);
  // A forged datagram arrives at a queue pair of this device.
  void deliver(uint32_t qp_num, const ForgedDatagram &forged);
  // The program is told of the connections of this device to `peer`: the `which`-th, counted round.
  void tell(const Device &peer, size_t which, const ForgedEvent &forged);
  // A completion queue breaks in the device: IBV_EVENT_CQ_ERR, and nothing is written to it.
  void break_completion_queue(ibv_cq *cq);

 private:
  Adapter &adapter_;
};

// A failing call: `count` calls of `call`, from the `at`-th on, counted from the call of fail().
struct CallFault {
  std::string_view call;  // such as "ibv_reg_mr", also for those that are inline in the header
  int error;              // an errno
  uint64_t at = 1;
  uint64_t count = 1;
};

// A completion with an error of the test's choice. The queue pair goes into the error state, as it
// does for every error.
struct CompletionFault {
  ibv_wc_status status;
  bool receive = false;  // a receive, or else an operation of the send queue
  uint64_t at = 1;       // the `at`-th completion of this kind from now on
  uint32_t qp_num = 0;   // of this queue pair; 0: of any
  uint32_t vendor_err = 0x52;
};

// What happens to datagrams of UD queue pairs, in parts per thousand.
struct DatagramFaults {
  int lost = 0;
  int duplicated = 0;
};

// The network, its devices, and both libraries. At most one exists at a time. It must outlive all
// objects of the libraries.
class Network {
 public:
  explicit Network(const NetworkOptions &options = {});
  ~Network();
  Network(const Network &) = delete;
  Network &operator=(const Network &) = delete;

  Device &add(const DeviceOptions &options);

  // The hardware does one thing. Returns false when there is nothing to do.
  bool step();
  // step() until there is nothing to do; returns how often.
  size_t run();
  // Time passes: what waits for an answer is given up (Timers::kOnDemand).
  void expire_timers();

  // Faults. A name in `call` that the double does not define is a std::invalid_argument.
  void fail(const CallFault &fault);
  void fail(const CompletionFault &fault);
  void fail(const DatagramFaults &fault);
  // Forgets all faults that did not happen yet.
  void clear_faults();
  // How often a call was made, failed ones included.
  uint64_t calls(std::string_view call) const;

  // Objects that the program has open, such as "2 ibv_qp, 1 ibv_mr"; empty if there are none.
  std::string open_objects() const;
  // What the program did against the rules of the libraries where the call has no error to return,
  // in words.
  std::vector<std::string> complaints() const;

 private:
  std::unique_ptr<World> world_;
};

}  // namespace weft::verbs_double

#endif
