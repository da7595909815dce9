/* SPDX-License-Identifier: BSD-2-Clause */
/* The frozen layout as C11 sees it. The checks are in the header; the sizes are compared with those
 * of C++. */
#include "tests/abi/plugin_layout.h"

const size_t plugin_sizes_c[] = {
    sizeof(weft_error),         sizeof(weft_param),      sizeof(weft_value),
    sizeof(weft_core_services), sizeof(weft_offer),      sizeof(weft_instance),
    sizeof(weft_provider_ops),  sizeof(weft_provider),   sizeof(weft_provider_unit),
    sizeof(weft_layer_unit),    sizeof(weft_fid_header), sizeof(weft_op_tables),
    sizeof(weft_hook_link),     sizeof(weft_hook_unit),  sizeof(weft_unit),
    sizeof(weft_plugin_desc),   sizeof(weft_counter),    sizeof(weft_counters_ops)};
const size_t plugin_sizes_c_count = sizeof plugin_sizes_c / sizeof plugin_sizes_c[0];
