// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Sleeps in a known method for a mutex that another thread holds, until it is killed.
#include <chrono>
#include <mutex>
#include <thread>

namespace planted {
static std::mutex lock;
static volatile unsigned entered;

struct Door {
	__attribute__((noinline, noclone)) void enter()
	{
		std::lock_guard<std::mutex> inside(lock);
		entered = entered + 1;
	}
};
} // namespace planted

static void hold()
{
	for (;;) {
		{
			std::lock_guard<std::mutex> inside(planted::lock);
			std::this_thread::sleep_for(std::chrono::milliseconds(20));
		}
		std::this_thread::sleep_for(std::chrono::microseconds(500));
	}
}

int main()
{
	std::thread holder(hold);
	planted::Door door;

	for (;;)
		door.enter();
}
