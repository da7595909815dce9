/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NICs of the provider cxi and their services, for launchers and tools: who may use which part
 * of a NIC (fi_cxi.7, "Authorization Keys"), and who does.
 *
 * Example:
 *    #include <rdma/fi_ext.h>
 *    #include <stdio.h>
 *    #include <stdlib.h>
 *    static uint32_t service_for_a_job(struct fid_fabric *cxi, uint32_t user, uint16_t vni) {
 *      struct weft_cxi_services_ops *ops;
 *      struct weft_cxi_service job = {.member_count = 1, .vni_count = 1};
 *      uint32_t id = 0;
 *      char *text;
 *      job.members[0].id = user;
 *      job.vnis[0].first = job.vnis[0].last = vni;
 *      if (fi_open_ops(&cxi->fid, WEFT_CXI_SERVICES_OPS, 0, (void **)&ops, NULL) != 0) return 0;
 *      if (ops->create(&cxi->fid, "cxi0", &job, &id, &text) != 0) {
 *        fprintf(stderr, "%s\n", text ? text : "no memory");
 *        free(text);
 *      }
 *      return id;
 *    }
 *
 * Any fabric of the provider will do. On hardware the driver's own tools make services, and calls
 * that change one return -FI_EOPNOTSUPP. Not for a program that merely wants to communicate.
 */
#ifndef WEFT_CXI_SERVICES_H
#define WEFT_CXI_SERVICES_H

#include <rdma/fabric.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_CXI_SERVICES_OPS "weft_cxi_services_1"

#define WEFT_CXI_MAX_MEMBERS 2
#define WEFT_CXI_MAX_VNIS 4

/* Bits of weft_cxi_service.classes. */
#define WEFT_CXI_DEDICATED_ACCESS (1u << 0)
#define WEFT_CXI_LOW_LATENCY (1u << 1)
#define WEFT_CXI_BULK_DATA (1u << 2)
#define WEFT_CXI_BEST_EFFORT (1u << 3)

struct weft_cxi_device {
  char name[64]; /* "cxi0" */
  uint32_t nid;  /* its address */
  uint8_t is_software, is_up;
  /* What all services have together, and how much of it is in use. */
  uint32_t max_list_entries, max_triggered, list_entries, triggered;
};

struct weft_cxi_member {
  uint32_t id; /* of a user or a group */
  uint8_t is_group;
};
struct weft_cxi_vnis {
  uint16_t first, last;
};
struct weft_cxi_service {
  uint32_t id;
  uint8_t is_enabled, is_usable; /* usable: by the user of this process */
  uint8_t member_count, vni_count;
  struct weft_cxi_member members[WEFT_CXI_MAX_MEMBERS]; /* none: everybody */
  struct weft_cxi_vnis vnis[WEFT_CXI_MAX_VNIS];         /* none: all */
  uint32_t classes;                                     /* 0: all */
  uint32_t max_list_entries, max_triggered;             /* to create one: 0 is all of the NIC */
  uint32_t list_entries, triggered, processes;          /* in use */
};

struct weft_cxi_process {
  uint32_t id;
  uint32_t list_entries, triggered;
};

/* Calls return 0 or -FI_E.... On failure *text_app is the reason, which the caller frees with
 * free(), else NULL; text_app may be NULL. `count`: the room of an array, then how many there are,
 * also where there was no room for all. Touch a member only if it ends within `size`. */
struct weft_cxi_services_ops {
  size_t size;

  int (*devices)(struct fid *fabric, struct weft_cxi_device *devices, size_t *count,
                 char **text_app);
  /* In the order of their ids. */
  int (*services)(struct fid *fabric, const char *device, struct weft_cxi_service *services,
                  size_t *count, char **text_app);
  /* Who uses a service; 0: any. */
  int (*processes)(struct fid *fabric, const char *device, uint32_t service,
                   struct weft_cxi_process *processes, size_t *count, char **text_app);
  /* Enabled, with the members, VNIs, classes and limits of `service`. */
  int (*create)(struct fid *fabric, const char *device, const struct weft_cxi_service *service,
                uint32_t *id, char **text_app);
  int (*enable)(struct fid *fabric, const char *device, uint32_t service, int enabled,
                char **text_app);
  /* -FI_EBUSY: a living process uses it. */
  int (*destroy)(struct fid *fabric, const char *device, uint32_t service, char **text_app);
};

#ifdef __cplusplus
}
#endif

#endif
