/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A module of Redis with a command that computes, `planted.digest`. What it takes of redismodule.h
 * (Redis 4 and later) is declared here: Debian packages no such header.
 */
static int (*create_command)(void *context, const char *name,
			     int (*command)(void *, void **, int), const char *flags, int first,
			     int last, int step);
static int (*reply_with_integer)(void *context, long long integer);
static volatile unsigned sink;

__attribute__((noinline, noclone)) static unsigned planted_digest(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		sink = sink * 1664525 + 1013904223;
	return sink;
}

__attribute__((noinline)) static int planted_command(void *context, void **words, int count)
{
	(void)words;
	(void)count;
	return reply_with_integer(context, planted_digest(3000000));
}

int RedisModule_OnLoad(void *context, void **words, int count)
{
	/* Its first member gives the functions of the interface by name. */
	int (*api)(const char *name, void *function) = *(int (**)(const char *, void *))context;
	void (*set_attributes)(void *context, const char *name, int version, int api_version);

	(void)words;
	(void)count;
	if (api("RedisModule_SetModuleAttribs", &set_attributes) ||
	    api("RedisModule_CreateCommand", &create_command) ||
	    api("RedisModule_ReplyWithLongLong", &reply_with_integer))
		return 1;
	set_attributes(context, "planted", 1, 1);
	return create_command(context, "planted.digest", planted_command, "", 0, 0, 0);
}
