// SPDX-License-Identifier: BSD-2-Clause
// The NICs of the provider cxi and their services, as weft/cxi_services.h has them.
//
// Example:
//     Result<void> print_nics() {
//       WEFT_TRY(const CxiNics nics, CxiNics::open());
//       WEFT_TRY(const auto devices, nics.devices());
//       for (const weft_cxi_device &one : devices) std::puts(one.name);
//       return {};
//     }
#ifndef WEFT_TOOLS_WEFT_CXI_H
#define WEFT_TOOLS_WEFT_CXI_H

#include <rdma/fabric.h>
#include <weft/cxi_services.h>
#include <weft/result.h>

#include <memory>
#include <string>
#include <vector>

namespace weft::cli {

class CxiNics {
 public:
  // An error if the provider is not offered here. What a launcher says (SLINGSHOT_*) does not hide
  // a NIC: this process unsets it.
  static Result<CxiNics> open();

  Result<std::vector<weft_cxi_device>> devices() const;
  Result<std::vector<weft_cxi_service>> services(const std::string &device) const;
  Result<weft_cxi_service> service(const std::string &device, uint32_t id) const;
  Result<std::vector<weft_cxi_process>> processes(const std::string &device, uint32_t id) const;
  Result<uint32_t> create(const std::string &device, const weft_cxi_service &service) const;
  Result<void> enable(const std::string &device, uint32_t id, bool enabled) const;
  Result<void> destroy(const std::string &device, uint32_t id) const;

 private:
  struct Close {
    void operator()(fid_fabric *fabric) const;
  };
  template <class T, class F>
  Result<std::vector<T>> read_all(F call) const;
  template <class F>
  Result<void> change(F call) const;

  std::unique_ptr<fid_fabric, Close> fabric_;
  weft_cxi_services_ops *ops_ = nullptr;
};

// "user 1000" and "group 12"; "everybody".
std::string members_text(const weft_cxi_service &service);
std::string vnis_text(const weft_cxi_service &service);     // "10,100-200"; "all"
std::string classes_text(const weft_cxi_service &service);  // "bulk_data,best_effort"; "all"

// What the words of a command line mean. They add to `service`.
Result<void> add_vnis(weft_cxi_service &service, const std::string &words);  // "10,100-200"
Result<void> add_class(weft_cxi_service &service, const std::string &word);
// "alice", "1000"
Result<void> add_member(weft_cxi_service &service, const std::string &name, bool is_group);

}  // namespace weft::cli

#endif
