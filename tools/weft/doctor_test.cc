// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/doctor.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

Facts good_machine() {
  Facts facts;
  facts.ranks = 100;
  facts.fd_soft = 1024;
  facts.fd_hard = 524288;
  facts.somaxconn = 4096;
  facts.syn_backlog = 2048;
  facts.port_low = 32768;
  facts.port_high = 60999;
  facts.domains = {{"eth0", "10.0.0.2", false}, {"lo", "127.0.0.1", true}};
  Facts::Folder folder;
  folder.path = "/usr/lib/weft";
  folder.origin = "built-in";
  folder.exists = folder.has_plugins = folder.has_index = true;
  facts.folders = {folder};
  return facts;
}

Finding of(const Facts &facts, const std::string &check) {
  const std::vector<Finding> findings = judge(facts);
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding &one) { return one.check == check; });
  EXPECT_NE(found, findings.end()) << check;
  return found == findings.end() ? Finding{} : *found;
}

TEST(DoctorTest, AGoodMachineHasNoFindings) {
  EXPECT_EQ(worst_of(judge(good_machine())), State::kOk);
  for (const Finding &finding : judge(good_machine())) EXPECT_EQ(finding.remedy, "");
}

TEST(DoctorTest, OpenFiles) {
  Facts facts = good_machine();
  facts.ranks = 1000;
  Finding finding = of(facts, "open files");
  EXPECT_EQ(finding.state, State::kWarn);
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -n 2048"));
  facts.fd_hard = 1500;
  EXPECT_THAT(of(facts, "open files").remedy, HasSubstr("ulimit -n 1500"));
  facts.fd_hard = 1024;
  finding = of(facts, "open files");
  EXPECT_EQ(finding.state, State::kFail);
  EXPECT_THAT(finding.cause, HasSubstr("1064"));
  EXPECT_THAT(finding.remedy, HasSubstr("nofile 2048"));
  facts.fd_soft = facts.fd_hard = UINT64_MAX;
  EXPECT_EQ(of(facts, "open files").state, State::kOk);
  EXPECT_THAT(of(facts, "open files").finding, HasSubstr("unlimited"));
}

TEST(DoctorTest, Queues) {
  Facts facts = good_machine();
  facts.somaxconn = 128;
  EXPECT_EQ(of(facts, "net.core.somaxconn").state, State::kOk);
  facts.ranks = 200;
  EXPECT_EQ(of(facts, "net.core.somaxconn").state, State::kWarn);
  EXPECT_EQ(of(facts, "net.core.somaxconn").remedy, "sysctl -w net.core.somaxconn=4096");
  facts.ranks = 5000;
  EXPECT_EQ(of(facts, "net.core.somaxconn").remedy, "sysctl -w net.core.somaxconn=8192");
  EXPECT_EQ(of(facts, "net.ipv4.tcp_max_syn_backlog").state, State::kWarn);
  facts.syn_backlog.reset();
  EXPECT_EQ(of(facts, "net.ipv4.tcp_max_syn_backlog").state, State::kOk);
}

TEST(DoctorTest, CxiNics) {
  Facts facts = good_machine();
  facts.cxi.push_back({.name = "cxi0",
                       .software = true,
                       .services = {1, 5},
                       .processes = 2,
                       .entries_free = 16000,
                       .entries = 16384});
  Facts::CxiNic &nic = facts.cxi[0];
  EXPECT_EQ(of(facts, "cxi cxi0").state, State::kOk);
  EXPECT_EQ(of(facts, "cxi cxi0").finding,
            "in software, services 1, 5 for this user, 2 processes, 16000 of 16384 list entries "
            "free");
  nic.entries_free = 100;
  EXPECT_EQ(of(facts, "cxi cxi0").state, State::kWarn);
  EXPECT_THAT(of(facts, "cxi cxi0").remedy, HasSubstr("weft cxi service show 1 --device cxi0"));
  nic.services.clear();
  EXPECT_THAT(of(facts, "cxi cxi0").remedy, HasSubstr("weft cxi service list"));
  nic.up = false;
  EXPECT_THAT(of(facts, "cxi cxi0").cause, HasSubstr("link is down"));
}

TEST(DoctorTest, RdmaDevices) {
  Facts facts = good_machine();
  facts.memlock_soft = 8 << 20;  // no matter without a device
  EXPECT_EQ(of(facts, "RDMA devices").finding, "none");
  EXPECT_EQ(worst_of(judge(facts)), State::kOk);
  facts.memlock_soft = UINT64_MAX;
  facts.rdma = {{"mlx5_0", true}, {"mlx5_1", false}};
  EXPECT_EQ(of(facts, "RDMA devices").state, State::kOk);
  EXPECT_EQ(of(facts, "RDMA devices").finding, "mlx5_0, mlx5_1 (port down)");
  facts.rdma[0].active = false;
  EXPECT_EQ(of(facts, "RDMA devices").state, State::kWarn);
  EXPECT_THAT(of(facts, "RDMA devices").remedy, HasSubstr("rdma link"));
  facts.unopened_node = "/dev/infiniband/rdma_cm";
  EXPECT_THAT(of(facts, "RDMA devices").cause, HasSubstr("/dev/infiniband/rdma_cm"));
  EXPECT_THAT(of(facts, "RDMA devices").remedy, HasSubstr("rdma_ucm"));
}

TEST(DoctorTest, LockedMemory) {
  const std::string check = "locked memory";
  Facts facts = good_machine();
  facts.rdma = {{"rxe0", true}};
  EXPECT_EQ(of(facts, check).state, State::kOk);
  facts.memlock_soft = 8 << 20;
  EXPECT_EQ(of(facts, check).state, State::kWarn);
  EXPECT_THAT(of(facts, check).remedy, HasSubstr("ulimit -l unlimited"));
  facts.memlock_hard = uint64_t{4} << 30;
  EXPECT_THAT(of(facts, check).remedy, HasSubstr("ulimit -l 4194304 "));
  facts.memlock_hard = 8 << 20;
  EXPECT_EQ(of(facts, check).state, State::kFail);
  EXPECT_THAT(of(facts, check).remedy, HasSubstr("memlock unlimited"));
}

TEST(DoctorTest, Ports) {
  const std::string check = "net.ipv4.ip_local_port_range";
  Facts facts = good_machine();
  facts.port_high = *facts.port_low + 149;
  EXPECT_EQ(of(facts, check).state, State::kWarn);
  facts.port_high = *facts.port_low + 98;
  EXPECT_EQ(of(facts, check).state, State::kFail);
  facts.port_high = *facts.port_low - 1;  // nonsense is not judged
  EXPECT_EQ(of(facts, check).state, State::kOk);
}

TEST(DoctorTest, Interfaces) {
  Facts facts = good_machine();
  EXPECT_THAT(of(facts, "interfaces").finding, HasSubstr("eth0 (10.0.0.2), lo (127.0.0.1)"));
  facts.domains.erase(facts.domains.begin());
  EXPECT_EQ(of(facts, "interfaces").state, State::kWarn);
  EXPECT_THAT(of(facts, "interfaces").remedy, HasSubstr("ip link set"));
  facts.domains.clear();
  facts.no_domain_reason = "tcp: disabled";
  EXPECT_EQ(of(facts, "interfaces").state, State::kFail);
  EXPECT_EQ(of(facts, "interfaces").cause, "tcp: disabled");
}

TEST(DoctorTest, AProviderThatWasAskedForAndHasNothingLeftFails) {
  Facts facts = good_machine();
  facts.lost = {{"tcp", "the filter hsn* matches no interface", "/etc/weft/10-site.yaml:8:10"}};
  const Finding finding = of(facts, "provider tcp");
  EXPECT_EQ(finding.state, State::kFail) << "though others answer";
  EXPECT_THAT(finding.cause, HasSubstr("hsn*"));
  EXPECT_THAT(finding.remedy, HasSubstr("10-site.yaml:8:10"));
}

TEST(DoctorTest, Folders) {
  const auto with = [](auto change) {
    Facts facts = good_machine();
    change(facts.folders.front());
    return of(facts, "plugin folder");
  };
  EXPECT_EQ(with([](Facts::Folder &folder) { folder.exists = false; }).state, State::kWarn);
  const Finding open = with([](Facts::Folder &folder) {
    folder.world_writable = true;
    folder.world_writable_path = "/usr/lib/weft/tcp.so";
  });
  EXPECT_EQ(open.state, State::kFail);
  EXPECT_EQ(open.remedy, "chmod o-w '/usr/lib/weft/tcp.so'");
  for (bool Facts::Folder::*trouble :
       {&Facts::Folder::index_damaged, &Facts::Folder::index_stale}) {
    const Finding finding = with([&](Facts::Folder &folder) { folder.*trouble = true; });
    EXPECT_EQ(finding.state, State::kWarn);
    EXPECT_EQ(finding.remedy, "weft plugin refresh '/usr/lib/weft'");
  }
  EXPECT_EQ(with([](Facts::Folder &folder) { folder.has_index = false; }).state, State::kWarn);
  EXPECT_EQ(
      with([](Facts::Folder &folder) { folder.has_index = folder.has_plugins = false; }).state,
      State::kOk);
}

TEST(DoctorTest, QuarantineAndConfiguration) {
  Facts facts = good_machine();
  facts.quarantined = {{"/opt/frob.so", "crashed"}};
  EXPECT_EQ(of(facts, "quarantine").state, State::kWarn);
  EXPECT_EQ(of(facts, "quarantine").cause, "crashed");
  facts.diagnostics = {{false, "/etc/weft/a.yaml:1:1", "odd"}};
  EXPECT_EQ(of(facts, "configuration").state, State::kWarn);
  facts.diagnostics[0].error = true;
  EXPECT_EQ(of(facts, "configuration").state, State::kFail);
  EXPECT_EQ(worst_of(judge(facts)), State::kFail);
}

}  // namespace
}  // namespace weft::cli
