/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Programs that user space runs over the elements of a map: iterators; or, where the policy of the
 * kernel refuses those, walks, which bpf(BPF_PROG_RUN) runs (Linux kernel commits 79a7f8bdb159 "bpf:
 * Introduce bpf_sys_bpf() helper and program type." (in v5.14) and 69c087ba6225 "bpf: Add
 * bpf_for_each_map_elem() helper" (in v5.13)).
 */
#ifndef LISTINGS_BPF_H
#define LISTINGS_BPF_H

#include "iterators.bpf.h"

SEC("iter/bpf_map_elem")
int list_listeners(struct bpf_iter__bpf_map_elem *ctx)
{
	struct listener *listener = ctx->value;
	address_t *key = ctx->key;
	struct listener_record record;

	if (!key || !listener)
		return 0;
	read_listener(&record, key, listener);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

SEC("iter/bpf_map_elem")
int list_handshakes(struct bpf_iter__bpf_map_elem *ctx)
{
	address_t *key = ctx->key;
	ns_t *start_ns = ctx->value;
	struct handshake_record record;

	if (key && start_ns && read_handshake(&record, key, start_ns))
		bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

SEC("iter/bpf_map_elem")
int list_connections(struct bpf_iter__bpf_map_elem *ctx)
{
	struct connection *connection = ctx->value;
	address_t *key = ctx->key;
	struct connection_record record;

	if (!key || !connection || !read_connection(&record, key, connection))
		return 0;
	/* When the buffer is full this one is shown again. */
	if (bpf_seq_write(ctx->meta->seq, &record, sizeof(record)))
		connections_open--;
	else
		connection_listed(&record, connection);
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

/* Of each element. It ends before one whose record would have no room. */
#define begin_visit()                                  \
	void *record = next_record();                  \
                                                       \
	if (!record)                                   \
		return 1;                              \
	if (elements_walked++ < walk_from)             \
		return 0

static long visit_listener(void *map, address_t *key, struct listener *listener, void *unused)
{
	begin_visit();
	read_listener(record, key, listener);
	records_put++;
	return 0;
}

static long visit_handshake(void *map, address_t *key, ns_t *start_ns, void *unused)
{
	begin_visit();
	if (read_handshake(record, key, start_ns))
		records_put++;
	return 0;
}

static long visit_connection(void *map, address_t *key, struct connection *connection,
			     void *unused)
{
	begin_visit();
	if (read_connection(record, key, connection)) {
		records_put++;
		connection_listed(record, connection);
	}
	return 0;
}

static long visit_to_sweep(void *map, address_t *key, struct connection *connection, void *unused)
{
	sweep_connection(key, connection);
	return 0;
}

SEC("syscall")
int walk_list_listeners(void *ctx)
{
	bpf_for_each_map_elem(&listeners, visit_listener, NULL, 0);
	return 0;
}

SEC("syscall")
int walk_list_handshakes(void *ctx)
{
	bpf_for_each_map_elem(&handshakes, visit_handshake, NULL, 0);
	return 0;
}

SEC("syscall")
int walk_list_connections(void *ctx)
{
	bpf_for_each_map_elem(&connections, visit_connection, NULL, 0);
	return 0;
}

SEC("syscall")
int walk_sweep_connections(void *ctx)
{
	bpf_for_each_map_elem(&connections, visit_to_sweep, NULL, 0);
	return 0;
}

#endif

#endif
