/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Programs that user space runs over the elements of a map: iterators; or, where the policy of the
 * kernel refuses those, walks, which bpf(BPF_PROG_RUN) runs (Linux kernel commits 79a7f8bdb159 "bpf:
 * Introduce bpf_sys_bpf() helper and program type." (in v5.14) and 69c087ba6225 "bpf: Add
 * bpf_for_each_map_elem() helper" (in v5.13)). Programs are loaded in the order of their sections:
 * these come first, so that a refusal costs little.
 */
#ifndef LISTINGS_BPF_H
#define LISTINGS_BPF_H

#include "iterators.bpf.h"

SEC("iter/bpf_map_elem")
int list_listeners(struct bpf_iter__bpf_map_elem *ctx)
{
	struct listener *listener = ctx->value;
	address_t *key = ctx->key;

	if (key && listener)
		write_listener(ctx->meta->seq, key, listener);
	return 0;
}

SEC("iter/bpf_map_elem")
int list_handshakes(struct bpf_iter__bpf_map_elem *ctx)
{
	address_t *key = ctx->key;
	ns_t *start_ns = ctx->value;

	if (key && start_ns)
		write_handshake(ctx->meta->seq, key, start_ns);
	return 0;
}

SEC("iter/bpf_map_elem")
int list_connections(struct bpf_iter__bpf_map_elem *ctx)
{
	struct connection *connection = ctx->value;
	address_t *key = ctx->key;

	if (key && connection)
		write_connection(ctx->meta->seq, key, connection);
	return 0;
}

SEC("iter/bpf_map_elem")
int sweep_connections(struct bpf_iter__bpf_map_elem *ctx)
{
	struct connection *connection = ctx->value;
	address_t *key = ctx->key;

	if (key && connection)
		sweep_connection(key, connection);
	return 0;
}

#ifndef EARLY_KERNEL

/* Where there is no room for one more record, the walk ends before the next element. */
#define WALK(name, value_type, visit)                                               \
	static long visit_by_##name(void *map, address_t *key,            \
				    value_type *value, void *unused)                \
	{                                                                           \
		if (records_put >= records_max)                                     \
			return 1;                                                   \
		if (elements_walked++ >= walk_from)                                 \
			visit;                                                      \
		return 0;                                                           \
	}                                                                           \
                                                                                    \
	SEC("syscall")                                                              \
	int name(void *ctx)

WALK(walk_list_listeners, struct listener, write_listener(NULL, key, value))
{
	bpf_for_each_map_elem(&listeners, visit_by_walk_list_listeners, NULL, 0);
	return 0;
}

WALK(walk_list_handshakes, ns_t, write_handshake(NULL, key, value))
{
	bpf_for_each_map_elem(&handshakes, visit_by_walk_list_handshakes, NULL, 0);
	return 0;
}

WALK(walk_list_connections, struct connection, write_connection(NULL, key, value))
{
	bpf_for_each_map_elem(&connections, visit_by_walk_list_connections, NULL, 0);
	return 0;
}

WALK(walk_sweep_connections, struct connection, sweep_connection(key, value))
{
	bpf_for_each_map_elem(&connections, visit_by_walk_sweep_connections, NULL, 0);
	return 0;
}

#endif

#endif
