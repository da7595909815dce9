// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fabric.h"

#include <weft/sdk/objects/eq.h>

#include "plugins/cxi/error_text.h"

namespace weft::cxi {

int Fabric::eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
  const int rc = FabricOps::eq_open(attr, eq, context);
  if (rc == 0) sdk::Eq::from(*eq)->text_of = text_of_error;
  return rc;
}

}  // namespace weft::cxi
