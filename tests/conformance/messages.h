// SPDX-License-Identifier: BSD-2-Clause
// Messages between endpoints that are not connected (fi_msg.3): the forms in which they are sent,
// and what holds of FI_EP_RDM and FI_EP_DGRAM alike.
//
// Example:
//     const Form kSenddata = {"Data", true, true, [](Net &net, Bytes &out) {
//       return fi_senddata(net[0].ep, out.data(), out.size(), nullptr, kData, net.at(0, 1), &out);
//     }};
//     const Form kForms[] = {kSend, kInject, kSenddata};
//     class Mine : public FormTest {};
//     INSTANTIATE_TEST_SUITE_P(All, Mine, every_form(kForms), form_name);
//
//     TEST_P(Mine, EverySizeArrivesOnce) {
//       Net net(2, {.type = FI_EP_RDM}, {});
//       arrives_once(net, {0, 1, 4096}, true);
//     }
#ifndef WEFT_TESTS_CONFORMANCE_MESSAGES_H
#define WEFT_TESTS_CONFORMANCE_MESSAGES_H

#include <functional>
#include <iosfwd>
#include <tuple>

#include "tests/conformance/unconnected.h"

namespace weft::conformance::unconnected {

inline constexpr uint64_t kData = 0x1122334455667788;  // of those that have some

fi_msg message_of(const std::vector<iovec> &iov, fi_addr_t to, void *context);

// One way to send `out` from the first application to the second.
struct Form {
  const char *name;
  bool completes, has_data;
  ssize_t (*send)(Net &net, Bytes &out);
};
std::ostream &operator<<(std::ostream &out, const Form &form);
extern const Form kSend, kSendv, kSendmsg, kInject;

// When the receive is posted, relative to the arrival of the message.
enum class When { kBefore, kAfter };

class FormTest : public ::testing::TestWithParam<std::tuple<Form, When>> {
 protected:
  // A message of each size by this form: its bytes and nothing else arrive, each end has one
  // completion. Its flags are those of a message, and with `exactly` no others.
  void arrives_once(Net &net, const std::vector<size_t> &sizes, bool exactly);
};
std::string form_name(const ::testing::TestParamInfo<std::tuple<Form, When>> &info);
template <class Forms>
auto every_form(const Forms &forms) {
  return ::testing::Combine(::testing::ValuesIn(forms),
                            ::testing::Values(When::kBefore, When::kAfter));
}

// fi_recvv and fi_recvmsg, with every number of vectors.
void scatters(Net &net, const std::vector<size_t> &sizes);
// fi_cancel of one of two receives. Returns what a second one says.
int cancel_ends_a_receive(Net &net);
// Of many receives with one context, which `post` posts at application 1, each fi_cancel ends one.
void each_cancel_ends_a_receive(Net &net, const std::function<ssize_t(void *context)> &post);
// fi_send from applications 3, 1, 2, 1 to application 0, which has FI_SOURCE.
void names_its_sources(Net &net, const std::vector<size_t> &sizes);

}  // namespace weft::conformance::unconnected

#endif
