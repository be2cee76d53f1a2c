// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Strategy "tracepoint" for kernels whose tracing programs have no task storage, no typed
 * current task and no atomic operation that returns a value: up to v5.12.
 */
#define EARLY_KERNEL
#include "tracepoint.bpf.c"
