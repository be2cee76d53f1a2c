// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Functions that compilers inline in many ways. "spins" is said, and the end of stdin waited for.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace planted {
namespace {
int weigh(const std::string &word)
{
	int sum = 0;
	for (char letter : word)
		sum += letter;
	return sum;
}
} // namespace

template <typename Of> struct Table {
	std::map<std::string, Of> rows;

	void put(const std::string &key, Of value)
	{
		rows[key] = value + static_cast<Of>(weigh(key));
	}
	~Table()
	{
		if (rows.size() > 100)
			std::puts("many");
	}
};

__attribute__((noinline)) int sorted(std::vector<std::string> words)
{
	auto shorter = [](const std::string &one, const std::string &other) {
		return weigh(one) < weigh(other);
	};
	std::sort(words.begin(), words.end(), shorter);
	return weigh(words.front());
}

__attribute__((noinline)) int later(int rounds)
{
	std::function<int(int)> added = [rounds](int value) {
		struct Local {
			static int twice(int value) { return value * 2; }
		};
		return Local::twice(value) + rounds;
	};
	return added(rounds);
}
} // namespace planted

int main(int count, char **words)
{
	planted::Table<int> table;
	planted::Table<double> other;

	for (int at = 0; at < count; at++) {
		table.put(words[at], at);
		other.put(words[at], at / 2.0);
	}
	std::puts("spins");
	std::fflush(stdout);
	int sum = planted::sorted({words, words + count}) + planted::later(count);
	std::getchar();
	return sum == 1;
}
