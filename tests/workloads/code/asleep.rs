// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Sleeps in a known function for a mutex that another thread holds, until it is killed.
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

static LOCK: Mutex<u32> = Mutex::new(0);

mod planted {
    #[inline(never)]
    pub fn enter() {
        *super::LOCK.lock().unwrap() += 1;
    }
}

fn main() {
    thread::spawn(|| loop {
        {
            let _inside = LOCK.lock().unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_micros(500));
    });
    loop {
        planted::enter();
    }
}
