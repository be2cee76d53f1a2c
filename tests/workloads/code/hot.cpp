// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Burns CPU in a method until stdin ends. "spins" is said first.
#include <cstdio>
#include <poll.h>

namespace planted {
static volatile unsigned sink;

struct Verifier {
	__attribute__((noinline, noclone)) unsigned digest(unsigned rounds)
	{
		for (unsigned i = 0; i < rounds; i++)
			sink = sink * 1664525 + 1013904223;
		return sink;
	}
};
} // namespace planted

int main()
{
	pollfd end = { 0, POLLIN, 0 };
	planted::Verifier verifier;

	std::puts("spins");
	std::fflush(stdout);
	while (!poll(&end, 1, 0))
		verifier.digest(3000000);
	return 0;
}
